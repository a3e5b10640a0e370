// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// Texts of protocols and files: ASCII rules whatever the locale, which <cctype> asks for every character.
namespace millrace::text {

inline constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
inline constexpr bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline constexpr bool is_alphanumeric(char c) noexcept { return is_letter(c) || is_digit(c); }

/// ASCII letters in lower case; every other byte as it is.
inline constexpr char to_lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
std::string to_lower(std::string_view text);

/// Whether two texts are equal but for the case of ASCII letters.
inline constexpr bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (to_lower(a[i]) != to_lower(b[i])) return false;
  }
  return true;
}

}  // namespace millrace::text

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/text/impl/ascii.ipp>
#endif
