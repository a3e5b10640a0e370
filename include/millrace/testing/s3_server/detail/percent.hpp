// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace::s3_server::detail {

// This folder judges what the library's client sends, so it shares no code with s3/: a mistake made twice in the same
// function would go unseen.

inline bool unreserved(char c) noexcept {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

std::string percent_encode(std::string_view text, bool keep_slash);

/// The bytes behind percent-encoded text, nothing for a `%` without two hexadecimal digits. `+` is itself.
std::optional<std::string> percent_decode(std::string_view text);

/// Keys in listings with `encoding-type=url`: as S3 sends them, `/` kept and a space as `+`.
std::string listing_encode(std::string_view text);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/percent.ipp>
#endif
