// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
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
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned a = at(0);
  if (a < 0x80) return a >= 0x20 && a != 0x7f ? 1 : 0;
  const std::size_t length = a >= 0xf0 ? 4 : a >= 0xe0 ? 3 : 2;
  if (a < 0xc2 || a > 0xf4) return 0;
  std::uint32_t c = a & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    c = c << 6 | (at(i) & 0x3f);
  }
  static constexpr std::uint32_t first[] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < first[length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
  const bool hides = c < 0xa0 || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
                     (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
  return hides ? 0 : length;
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
