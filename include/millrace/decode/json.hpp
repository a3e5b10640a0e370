// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include <millrace/base/bytes.hpp>
#include <millrace/base/error.hpp>

namespace millrace {

/// A JSON field as nlohmann::json. Throws decode_error with the position of what is wrong. Not part of millrace.hpp:
/// the header it needs costs a second of compile time.
inline nlohmann::json parse_json(const bytes& text, const where& at = where()) {
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& e) {
    throw decode_error("not JSON: parse error at byte " + std::to_string(e.byte) + " of the field", at);
  }
}

/// Member `name` of a JSON object, converted to T. Throws decode_error when it is missing or of another type.
template <class T>
T json_value(const nlohmann::json& object, const char* name, const where& at = where()) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end()) throw decode_error(std::string("the JSON has no member \"") + name + "\"", at);
  try {
    return found->template get<T>();
  } catch (const nlohmann::json::exception&) {
    throw decode_error(std::string("the JSON member \"") + name + "\" is a " + found->type_name(), at);
  }
}

}  // namespace millrace
