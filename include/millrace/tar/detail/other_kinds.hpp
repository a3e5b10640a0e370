// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

/// Names the kind of an object that is not an archive, from its first bytes: for error messages.

/// Returns true if it may be text: no control characters but white space, and, as far as a short beginning goes (which
/// compressed data may have without one), UTF-8. The last character may be cut.
bool looks_like_text(std::string_view head) noexcept;

/// The name of a compression that is not unpacked here; empty if it begins like none.
std::string_view other_compression(std::string_view head) noexcept;

/// The codings that a Content-Encoding names: "br", "gzip, br"; empty if the bytes are not encoded. `aws-chunked` means
/// nothing: it is S3's form of an upload, which some stores keep by mistake.
std::string content_coding(std::string_view encoding);

/// The name of the kind that begins so and is no archive: "XML or HTML, perhaps a server's error message", "gzip data",
/// "text"; empty if it begins like nothing that is known.
std::string other_kind(std::string_view head);

/// ", but text: it begins with "Not Found"", to continue "not an archive"; `: it begins with "..."` for an unknown
/// kind. 24 bytes of it are shown.
std::string not_but(std::string_view head);

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/other_kinds.ipp>
#endif
