// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Without blanks and quotes at its ends. Quotes are no part of an opaque tag.
MILLRACE_INLINE std::string_view without_quotes(std::string_view tag) noexcept {
  constexpr std::string_view around[] = {" ", "\t", "\r", "\n", "\"", "&quot;", "&#34;"};
  for (bool shorter = true; shorter;) {
    shorter = false;
    for (const std::string_view a : around) {
      while (tag.substr(0, a.size()) == a && !tag.empty()) {
        tag.remove_prefix(a.size());
        shorter = true;
      }
      while (tag.size() >= a.size() && tag.substr(tag.size() - a.size()) == a) {
        tag.remove_suffix(a.size());
        shorter = true;
      }
    }
  }
  return tag;
}

/// The tag without `W/`; `weak` says whether it was there.
MILLRACE_INLINE std::string_view without_weakness(std::string_view tag, bool& weak) noexcept {
  const std::size_t begin = tag.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos) tag.remove_prefix(begin);
  weak = tag.size() > 2 && (tag[0] == 'W' || tag[0] == 'w') && tag[1] == '/';
  if (weak) tag.remove_prefix(2);
  return tag;
}

MILLRACE_INLINE std::string_view opaque_tag(std::string_view etag) noexcept {
  bool weak = false;
  return without_quotes(without_weakness(etag, weak));
}

MILLRACE_INLINE bool same_etag(std::string_view a, std::string_view b) noexcept {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  if (a == b) return true;
  // `W/x` without quotes may also be the opaque tag of "W/x": base64 has slashes.
  return opaque_tag(a) == opaque_tag(b) || without_quotes(a) == without_quotes(b);
}

MILLRACE_INLINE bool is_strong_etag(std::string_view etag) noexcept {
  bool weak = false;
  without_weakness(etag, weak);
  return !etag.empty() && !weak;
}

MILLRACE_INLINE std::string quoted_etag(std::string_view etag) {
  if (etag.empty()) return std::string();
  return (is_strong_etag(etag) ? "" : "W/") + plain_etag(etag);
}

MILLRACE_INLINE std::string plain_etag(std::string_view etag) {
  std::string text;
  if (etag.empty()) return text;
  text = '"';
  text += opaque_tag(etag);
  return text + '"';
}

MILLRACE_INLINE std::string if_match_value(std::string_view etag) {
  if (!is_strong_etag(etag)) return std::string();
  const std::string_view opaque = opaque_tag(etag);
  // The code that makes a header field of it refuses line breaks with an error.
  const bool breaks = opaque.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos;
  if (!breaks && opaque.find('"') != std::string_view::npos) return std::string();
  return plain_etag(etag);
}

MILLRACE_INLINE changed_error version_changed(const std::string& before, const std::string& now, where at) {
  return changed_error("the object changed while it was read: ETag " + before + " became " +
                           (now.empty() ? "another" : now),
                       std::move(at));
}

}  // namespace millrace::detail
