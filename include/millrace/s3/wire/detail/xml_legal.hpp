// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/text/utf8.hpp>

namespace millrace::s3::detail {

/// Bytes of the character that begins at `text[0]`, one above 0x7f; 0 when it is no UTF-8 or none that XML 1.0 allows.
inline std::size_t xml_character(std::string_view text) noexcept {
  const text::utf8_character c = text::first_utf8(text);
  return c.code == 0xfffe || c.code == 0xffff ? 0 : c.length;
}

/// `document` with a question mark for every character that XML 1.0 has no way to write, be it raw or a character
/// reference, and for every byte that is not UTF-8. Stores repeat keys in their answers as they are, and keys may hold
/// any of them; where the key is not what one wants to know, the rest of the answer is good.
std::string xml_legal(std::string_view document);

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/wire/detail/impl/xml_legal.ipp>
#endif
