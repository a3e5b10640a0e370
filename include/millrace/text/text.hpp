// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include <millrace/base/error.hpp>

/// Texts of protocols and files: ASCII rules whatever the locale, which <cctype> asks for every character.

namespace millrace::inline MILLRACE_ABI::text {

inline constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
inline constexpr bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline constexpr bool is_alphanumeric(char c) noexcept { return is_letter(c) || is_digit(c); }

/// ASCII letters in lower case; every other byte as it is.
inline constexpr char to_lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
std::string to_lower(std::string_view text);

/// Returns true if two texts are equal but for the case of ASCII letters.
inline constexpr bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (to_lower(a[i]) != to_lower(b[i])) return false;
  }
  return true;
}

inline constexpr bool starts_ignoring_case(std::string_view text, std::string_view front) noexcept {
  return equal_ignoring_case(text.substr(0, front.size()), front);
}

/// Without the blanks and line breaks at both ends, which pretty printers leave around a number in XML.
inline constexpr std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return std::string_view();
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// The value of a hexadecimal digit of either case, or -1.
inline constexpr int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/// Appends lower-case hexadecimal, two digits a byte.
void append_hex(std::string& out, std::span<const unsigned char> bytes);

/// Parses the decimal digits at the front of `rest` and removes them. Returns nullopt, and removes nothing, if there is
/// no digit or the number overflows `Number`. No sign, no blanks, any number of leading zeros.
template <class Number>
std::optional<Number> take_decimal(std::string_view& rest) noexcept {
  static_assert(std::is_integral_v<Number>, "take_decimal reads whole numbers");
  if (rest.empty() || !is_digit(rest.front())) return std::nullopt;  // from_chars would take a minus sign
  Number value{};
  const char* const first = rest.data();
  const std::from_chars_result read = std::from_chars(first, first + rest.size(), value);
  if (read.ec != std::errc()) return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(read.ptr - first));
  return value;
}

/// Parses all of `text` as a decimal number: digits only. Returns nullopt for anything else, and for a value that
/// overflows.
template <class Number>
std::optional<Number> parse_decimal(std::string_view text) noexcept {
  const std::optional<Number> value = take_decimal<Number>(text);
  return text.empty() ? value : std::nullopt;
}

/// Like the above, between two bounds, both allowed.
template <class Number>
std::optional<Number> parse_decimal(std::string_view text, Number least, Number most) noexcept {
  const std::optional<Number> value = parse_decimal<Number>(text);
  return value && *value >= least && *value <= most ? value : std::nullopt;
}

namespace detail {

/// A table, since every byte of a request's path is looked up before it is signed.
struct unreserved_bytes {
  bool at[256] = {};
  constexpr unreserved_bytes() noexcept {
    for (unsigned char c = 'a'; c <= 'z'; ++c) at[c] = true;
    for (unsigned char c = 'A'; c <= 'Z'; ++c) at[c] = true;
    for (unsigned char c = '0'; c <= '9'; ++c) at[c] = true;
    for (char c : {'-', '.', '_', '~'}) at[static_cast<unsigned char>(c)] = true;
  }
};
inline constexpr unreserved_bytes unreserved;

/// The bytes that S3 never percent-encodes: `unreserved` of RFC 3986, section 2.3.
inline bool is_unreserved(char c) noexcept { return unreserved.at[static_cast<unsigned char>(c)]; }

void append_uri_encoded(std::string& out, std::string_view text, bool keep_slash);

}  // namespace detail

/// Appends `text` encoded once for a path: every byte but unreserved ones and `/`, upper-case hexadecimal, no
/// normalisation of `//` or dot segments. These very bytes are signed and sent.
inline void append_encoded_path(std::string& out, std::string_view text) {
  detail::append_uri_encoded(out, text, true);
}

/// Appends `text` encoded once for the name or the value of a query parameter: `/` too, a space as `%20`, never `+`.
inline void append_encoded_query(std::string& out, std::string_view text) {
  detail::append_uri_encoded(out, text, false);
}

std::string encode_path(std::string_view text);

std::string encode_query(std::string_view text);

/// Appends `name=value` to a query string, both encoded, with `&` when something is there already.
void append_query_parameter(std::string& query, std::string_view name, std::string_view value);

/// The meaning of a `+` for uri_decode.
enum class plus_sign {
  literal,  ///< itself (RFC 3986)
  space,    ///< a space: HTML forms, and keys in S3 answers with `encoding-type=url`
};

/// Decodes percent-encoded text; nullopt if a `%` is not followed by two hexadecimal digits.
std::optional<std::string> uri_decode(std::string_view text, plus_sign plus = plus_sign::literal);

/// Appends `text` as a string of JSON with its quotes (RFC 8259); no copy of it is made, since it may be a secret. Each
/// byte that belongs to no character of UTF-8 becomes U+FFFD; false if there was one.
bool append_json_string(std::string& out, std::string_view text);

/// Appends the UTF-8 of a code point up to U+10FFFF that is no surrogate (RFC 3629).
void append_utf8(std::string& out, std::uint32_t code);

// The function that reads characters is in base/, whose errors escape the texts that they quote.
using millrace::detail::first_utf8;
using millrace::detail::utf8_character;

}  // namespace millrace::text

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/text/text.ipp>
#endif
