// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

#include <millrace/text/ascii.hpp>

namespace millrace::text {

/// The decimal digits at the front of `rest`, which loses them. Nothing, and nothing lost, where there is no digit or
/// the number does not fit into `Number`. No sign, no blanks, any number of leading zeros.
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

/// The number that the whole of `text` is: decimal digits and nothing else. Nothing where it is none or does not fit.
template <class Number>
std::optional<Number> parse_decimal(std::string_view text) noexcept {
  const std::optional<Number> value = take_decimal<Number>(text);
  return text.empty() ? value : std::nullopt;
}

/// The same between two bounds, both allowed.
template <class Number>
std::optional<Number> parse_decimal(std::string_view text, Number least, Number most) noexcept {
  const std::optional<Number> value = parse_decimal<Number>(text);
  return value && *value >= least && *value <= most ? value : std::nullopt;
}

}  // namespace millrace::text
