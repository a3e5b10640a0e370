// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::text {

/// Appends the UTF-8 of a code point up to U+10FFFF that is no surrogate (RFC 3629).
void append_utf8(std::string& out, std::uint32_t code);

/// One character at the front of a text.
struct utf8_character {
  std::size_t length = 0;  ///< in bytes; 0: the text is empty or does not begin with a character
  std::uint32_t code = 0;
};

/// The character that `text` begins with: strictly UTF-8 (RFC 3629), so no longer form than needed, no surrogates,
/// nothing above U+10FFFF.
utf8_character first_utf8(std::string_view text) noexcept;

}  // namespace millrace::text

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/text/impl/utf8.ipp>
#endif
