// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/utf8.hpp>
#include <millrace/base/error.hpp>

namespace millrace {

MILLRACE_INLINE void error::add_note(std::string_view note) {
  std::string text;
  append_escaped(text, note);
  notes_.add(std::runtime_error::what(), text);
}

MILLRACE_INLINE void error::add_place(where at) {
  if (!at_.empty() || at.empty()) return;
  std::string text = compose(std::string(), at);
  notes_.place(std::runtime_error::what(), text, std::move(at));
}

MILLRACE_INLINE std::size_t error::printable(std::string_view text) noexcept {
  const detail::utf8_character c = detail::first_utf8(text);
  const bool control = c.code < 0x20 || (c.code >= 0x7f && c.code < 0xa0);
  const bool hides = (c.code >= 0x200b && c.code <= 0x200f) || (c.code >= 0x2028 && c.code <= 0x202e) ||
                     (c.code >= 0x2060 && c.code <= 0x206f) || c.code == 0xfeff;
  return control || hides ? 0 : c.length;
}

MILLRACE_INLINE void error::append_escaped(std::string& out, std::string_view text) {
  static const char* const hex = "0123456789abcdef";
  while (!text.empty()) {
    const std::size_t n = printable(text);
    if (n > 0) {
      out.append(text.substr(0, n));
    } else {
      const auto u = static_cast<unsigned char>(text.front());
      out += "\\x";
      out += hex[u >> 4];
      out += hex[u & 15];
    }
    text.remove_prefix(n > 0 ? n : 1);
  }
}

MILLRACE_INLINE std::string error::compose(const std::string& reason, const where& at) {
  std::string text;
  append_escaped(text, at.object);
  if (at.offset) {
    text += text.empty() ? "at byte " : " at byte ";
    text += std::to_string(*at.offset);
  }
  if (!at.key.empty()) {
    if (!text.empty()) text += ", ";
    append_escaped(text, at.key);
  }
  if (!text.empty()) text += ": ";
  append_escaped(text, reason);
  return text;
}

}  // namespace millrace
