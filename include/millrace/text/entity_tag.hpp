// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <millrace/base/error.hpp>

/// ETags (RFC 9110, 8.8.3) as servers send them: `"e1"`, `W/"e1"`; and, in listings and answers of stores that are
/// careless with the quotes, `e1`, `&quot;e1&quot;` (escaped twice), with blanks around.

namespace millrace::inline MILLRACE_ABI::detail {

/// Returns true if two ETags name the same version, however they are spelled: the weak comparison of RFC 9110
/// (8.8.3.2), of the opaque tags. Case counts. An empty text is no ETag, and the same as another empty text only.
bool same_etag(std::string_view a, std::string_view b) noexcept;

/// Returns true if it may be used with If-Match (RFC 9110, 13.1.1) and to put bytes of two answers together.
bool is_strong_etag(std::string_view etag) noexcept;

/// The ETag in its proper spelling, `"e1"` or `W/"e1"`: the quotes added where they are missing. Empty for no ETag.
std::string quoted_etag(std::string_view etag);

/// One text for all spellings of an ETag, `"e1"`, also of a weak one: for digests of versions.
std::string plain_etag(std::string_view etag);

/// The value of If-Match that asks for this version; empty when there is none: no ETag, a weak one, or one
/// with a quote inside.
std::string if_match_value(std::string_view etag);

/// The error about an object that had the ETag `before` and has `now`; empty: none is known.
changed_error version_changed(const std::string& before, const std::string& now, where at);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/text/entity_tag.ipp>
#endif
