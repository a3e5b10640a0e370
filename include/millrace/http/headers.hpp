// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/detail/wipe.hpp>
#include <millrace/base/error.hpp>
#include <millrace/text/ascii.hpp>

namespace millrace::http {

/// Header fields in the order of the message. Names compare without regard to ASCII case (RFC 9110, 5.1). Values may be
/// secrets (signatures, session tokens): they are overwritten before their memory is freed.
template <class = void>
class basic_headers {
 public:
  using field = std::pair<std::string, std::string>;

  basic_headers() = default;
  basic_headers(const basic_headers&) = default;
  basic_headers(basic_headers&&) noexcept = default;
  basic_headers& operator=(basic_headers other) noexcept {
    fields_.swap(other.fields_);
    return *this;
  }
  ~basic_headers() { clear(); }

  /// Appends a field. Refuses CR, LF and NUL in either part and an empty name: what comes from files, keys and
  /// environment variables must not be able to add fields of its own.
  void add(std::string name, std::string value) {
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

  /// The first field of that name, null when there is none.
  const std::string* find(std::string_view name) const noexcept {
    for (const field& f : fields_) {
      if (text::equal_ignoring_case(f.first, name)) return &f.second;
    }
    return nullptr;
  }
  std::size_t count(std::string_view name) const noexcept {
    std::size_t n = 0;
    for (const field& f : fields_) n += text::equal_ignoring_case(f.first, name) ? 1U : 0U;
    return n;
  }

  std::size_t size() const noexcept { return fields_.size(); }
  void clear() noexcept {
    for (field& f : fields_) millrace::detail::wipe(f.second);
    fields_.clear();
  }
  auto begin() const noexcept { return fields_.begin(); }
  auto end() const noexcept { return fields_.end(); }

 private:
  std::vector<field> fields_;
};
using headers = basic_headers<>;

}  // namespace millrace::http
