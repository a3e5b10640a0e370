// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <millrace/coro/executor.hpp>

namespace millrace::testing {

/// What an executor holds, compared with what it held when the census was made: coroutine frames, operations in flight,
/// background clean-ups, timers. After everything of a test has been dropped and drained, all must be as before:
///
///     census before(loop);
///     { auto pipeline = ...; ... }        // dropped, wherever it is
///     loop.drain();
///     CHECK(before.difference() == "");
///
/// The destructor aborts with the difference when a test forgot to look and something is left.
class census {
 public:
  explicit census(executor& ex) noexcept
      : executor_(ex),
        frames_(ex.frames()),
        operations_(ex.operations()),
        background_(ex.background()),
        timers_(ex.timers()) {}
  census(const census&) = delete;
  census& operator=(const census&) = delete;
  ~census() { MILLRACE_ASSERT(asked_ || difference().empty(), difference().c_str()); }

  /// "" when nothing is left; otherwise what there is too much of, as in "2 frames, 1 timers".
  std::string difference() {
    asked_ = true;
    std::string text;
    compare(text, executor_.frames(), frames_, "frames");
    compare(text, executor_.operations(), operations_, "operations");
    compare(text, executor_.background(), background_, "background clean-ups");
    compare(text, executor_.timers(), timers_, "timers");
    return text;
  }

 private:
  static void compare(std::string& text, std::size_t now, std::size_t before, const char* what) {
    if (now == before) return;
    if (!text.empty()) text += ", ";
    const auto more = static_cast<std::ptrdiff_t>(now) - static_cast<std::ptrdiff_t>(before);
    text += std::to_string(more) + " " + what;
  }

  executor& executor_;
  const std::size_t frames_;
  const std::size_t operations_;
  const std::size_t background_;
  const std::size_t timers_;
  bool asked_ = false;
};

}  // namespace millrace::testing
