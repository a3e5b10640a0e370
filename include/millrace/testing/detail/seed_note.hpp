// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

namespace millrace::testing::detail {

/// The seed of a shuffled loop, which it must not take along when a test fails: written to standard error where an
/// exception ends the loop, as of a REQUIRE that does not hold.
class seed_note {
 public:
  seed_note() = default;
  explicit seed_note(std::uint64_t seed) : text_("MILLRACE_SEED=" + std::to_string(seed)) {}
  seed_note(const seed_note&) = delete;
  seed_note& operator=(const seed_note&) = delete;
  ~seed_note() {
    if (!text_.empty() && std::uncaught_exceptions() > exceptions_) std::fprintf(stderr, "%s\n", text_.c_str());
  }

  /// "MILLRACE_SEED=42"; "" where nothing is shuffled.
  const std::string& text() const noexcept { return text_; }
  /// The same in brackets, behind a sentence.
  std::string behind(const char* sentence) const {
    return text_.empty() ? std::string(sentence) : sentence + (" (" + text_ + ")");
  }

 private:
  const std::string text_;
  const int exceptions_ = std::uncaught_exceptions();  // those on their way since before the loop was made
};

}  // namespace millrace::testing::detail
