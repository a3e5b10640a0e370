// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::text {

/// Checks whether a text is one JSON document (RFC 8259), and says where and why it is not.
///
/// Accepts and refuses the same texts as Python's json.loads: NaN, Infinity and -Infinity are values, half of a
/// surrogate pair alone may stand in a string as an escape, and a UTF-8 byte order mark may stand first. Nested at most
/// `deepest` deep. Nothing is kept and nothing converted.
class json_scan {
 public:
  /// Nesting of objects and arrays.
  static constexpr std::size_t deepest = 1024;

  /// `trusted`: the text is known to be UTF-8 without control characters in strings. `depth`: of objects and arrays
  /// that the text stands in.
  explicit json_scan(std::string_view text, bool trusted = false, std::size_t depth = 0) noexcept
      : text_(text), trusted_(trusted), outer_(depth) {}

  /// False if the text is not one value and blanks; at() and reason() then say where and why.
  bool document() noexcept;

  /// The byte where the text stops to be JSON, and a clause that says why.
  std::size_t at() const noexcept { return at_; }
  const char* reason() const noexcept { return reason_; }

 private:
  bool fault(const char* reason) noexcept {
    reason_ = reason;
    return false;
  }
  char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() noexcept {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n')) {
      ++at_;
    }
  }
  bool value() noexcept;
  bool scalar() noexcept;
  bool name() noexcept;
  bool string() noexcept;
  void skip_plain() noexcept;
  bool escape() noexcept;
  bool number() noexcept;
  bool digits() noexcept;

  std::string_view text_;
  bool trusted_;
  std::size_t outer_;
  std::size_t at_ = 0;
  const char* reason_ = "";
};

/// "extra data at byte 19 of the text": why `text` is not one JSON document; nothing if it is.
std::optional<std::string> json_fault(std::string_view text);

/// The first escape in the raw text of a JSON string that is half of a surrogate pair without the other: "\ud83d".
/// Empty if there is none.
std::string_view lone_surrogate(std::string_view raw) noexcept;

/// The kind of value in a text that json_fault() finds no fault in: "an object", "a number", ...
const char* json_kind(std::string_view text) noexcept;

}  // namespace millrace::text

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/text/json_scan.ipp>
#endif
