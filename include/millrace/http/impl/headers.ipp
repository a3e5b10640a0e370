// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/http/headers.hpp>
#include <millrace/text/ascii.hpp>

namespace millrace::http {

MILLRACE_INLINE void headers::add(std::string name, std::string value) {
  const auto bad = [](char c) { return c == '\r' || c == '\n' || c == '\0'; };
  for (char c : name) {
    if (bad(c) || c == ':' || c == ' ') throw configuration_error("a header name has a forbidden character");
  }
  for (char c : value) {
    if (bad(c)) throw configuration_error("the value of header " + name + " has a control character");
  }
  if (name.empty()) throw configuration_error("a header name is empty");
  fields_.emplace_back(std::move(name), std::move(value));
}

MILLRACE_INLINE const std::string* headers::find(std::string_view name) const noexcept {
  for (const field& f : fields_) {
    if (text::equal_ignoring_case(f.first, name)) return &f.second;
  }
  return nullptr;
}

MILLRACE_INLINE std::size_t headers::count(std::string_view name) const noexcept {
  std::size_t n = 0;
  for (const field& f : fields_) n += text::equal_ignoring_case(f.first, name) ? 1U : 0U;
  return n;
}

}  // namespace millrace::http
