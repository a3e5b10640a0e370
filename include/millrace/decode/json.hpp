// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace {

namespace detail {

/// "a string", "null", "3.7": what an error says that a value is.
inline std::string shown_json(const nlohmann::json& value) {
  if (value.is_null()) return "null";
  if (value.is_number()) return value.dump();
  return std::string(value.is_array() || value.is_object() ? "an " : "a ") + value.type_name();
}

[[noreturn]] inline void refuse_json(const nlohmann::json& value, const std::string& name, const char* reason,
                                     const where& at) {
  throw decode_error("the JSON member \"" + name + "\" is " + shown_json(value) + reason, at);
}

/// nlohmann's get<T>() converts numbers with a cast, which wraps, cuts and takes booleans for numbers.
template <class T>
struct json_conversion {
  static T from(const nlohmann::json& value, const std::string& name, const where& at) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) refuse_json(value, name, ", not a boolean", at);
    } else if constexpr (std::is_integral_v<T>) {
      if (!value.is_number_integer()) refuse_json(value, name, ", not an integer", at);
      using limits = std::numeric_limits<T>;
      // is_number_integer() is true of unsigned ones too; what is not unsigned may still be positive.
      const bool fits = value.is_number_unsigned()
                            ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(limits::max())
                        : value.get<std::int64_t>() < 0
                            ? limits::is_signed && value.get<std::int64_t>() >= std::int64_t(limits::min())
                            : std::uint64_t(value.get<std::int64_t>()) <= std::uint64_t(limits::max());
      if (!fits) {
        const std::string range =
            ": expected an integer from " + std::to_string(limits::min()) + " to " + std::to_string(limits::max());
        refuse_json(value, name, range.c_str(), at);
      }
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!value.is_number()) refuse_json(value, name, ", not a number", at);
      if (std::abs(value.get<double>()) > static_cast<double>(std::numeric_limits<T>::max())) {
        refuse_json(value, name, ", too large for a value of its type", at);
      }
    }
    try {
      return value.get<T>();
    } catch (const nlohmann::json::exception&) {
      refuse_json(value, name, ", which cannot be converted to the type that was asked for", at);
    }
  }
};
template <class T, class A>
struct json_conversion<std::vector<T, A>> {
  static std::vector<T, A> from(const nlohmann::json& value, const std::string& name, const where& at) {
    if (!value.is_array()) refuse_json(value, name, ", not an array", at);
    std::vector<T, A> out;
    out.reserve(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
      out.push_back(json_conversion<T>::from(value[i], name + "[" + std::to_string(i) + "]", at));
    }
    return out;
  }
};

}  // namespace detail

/// A JSON text as nlohmann::json. Throws decode_error that says where `at` and why: text that is no JSON, with the
/// position in it, and numbers that no double can hold. Not part of millrace.hpp: the header it needs costs a second of
/// compile time.
inline nlohmann::json parse_json(std::string_view text, const where& at = where()) {
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& e) {
    throw decode_error("not JSON: parse error at byte " + std::to_string(e.byte) + " of the field", at);
  } catch (const nlohmann::json::exception& e) {
    throw decode_error(std::string("JSON that cannot be represented: ") + e.what(), at);
  }
}

/// A field of a sample.
inline nlohmann::json parse_json(const bytes& text, const where& at = where()) { return parse_json(text.view(), at); }

/// Member `name` of a JSON object as a T. An integral T takes integers in its range, bool takes booleans, a
/// floating-point T any number that is not too large for it, std::vector arrays of such; other types are converted by
/// nlohmann's get<T>(). Throws decode_error when the member is missing or anything else.
template <class T>
T json_value(const nlohmann::json& object, const char* name, const where& at = where()) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end()) throw decode_error(std::string("the JSON has no member \"") + name + "\"", at);
  return detail::json_conversion<T>::from(*found, name, at);
}

}  // namespace millrace
