// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace millrace::detail {

/// One character at the front of a text.
struct utf8_character {
  std::size_t length = 0;  ///< in bytes; 0: the text is empty or does not begin with a character
  std::uint32_t code = 0;
};

/// The character that `text` begins with: strictly UTF-8 (RFC 3629), so no longer form than needed, no surrogates,
/// nothing above U+10FFFF.
inline utf8_character first_utf8(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const std::uint32_t lead = at(0);
  if (text.empty()) return {};
  if (lead < 0x80) return {1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  std::uint32_t code = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (at(i) & 0x3f);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {length, code};
}

}  // namespace millrace::detail
