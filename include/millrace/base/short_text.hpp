// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A text of at most `Limit` bytes, kept in the object itself: for option structs, which must be trivially destructible
/// (under g++ 12 a temporary in a co_await expression is destroyed twice if it is not) and yet must not refer to a
/// string that ends with the expression, as in `options.endpoint = server.endpoint();`.
///
/// Throws configuration_error for a longer text. A null pointer is an empty text, so that the result of std::getenv()
/// can be given.
template <std::size_t Limit>
class short_text {
 public:
  constexpr short_text() noexcept = default;
  constexpr short_text(const char* text) : short_text(text == nullptr ? std::string_view() : std::string_view(text)) {}
  short_text(const std::string& text) : short_text(std::string_view(text)) {}
  constexpr short_text(std::string_view text) : size_(text.size()) {
    if (text.size() > Limit) {
      throw configuration_error("an option of " + std::to_string(text.size()) + " bytes, where " +
                                std::to_string(Limit) + " are the most");
    }
    for (std::size_t i = 0; i < size_; ++i) text_[i] = text[i];
  }

  constexpr operator std::string_view() const noexcept { return std::string_view(text_, size_); }
  constexpr bool empty() const noexcept { return size_ == 0; }

 private:
  std::size_t size_ = 0;
  char text_[Limit] = {};
};

}  // namespace millrace
