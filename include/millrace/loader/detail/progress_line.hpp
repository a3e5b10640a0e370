// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include <unistd.h>

#include <millrace/base/units.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/loader/detail/run_account.hpp>
#include <millrace/loader/run_options.hpp>

namespace millrace::detail {

/// The progress line: a timer of the loop that writes one line to standard error, in place on a terminal; the stage
/// table at the end.
template <class T = void>
class progress_line final : private timer_node {
 public:
  /// `rank`: the index of the process whose run it is.
  progress_line(executor& ex, const run_account<T>& account, progress show, std::uint32_t rank)
      : executor_(ex), account_(account), terminal_(::isatty(STDERR_FILENO) == 1) {
    shown_ = show == progress::on || (show == progress::automatic && terminal_ && rank == 0);
    if (shown_) arm();
  }
  ~progress_line() override {
    if (!shown_) return;
    executor_.remove_timer(*this);
    write(true);
    std::fputs(account_.snapshot().table().c_str(), stderr);
  }

 private:
  void fire() noexcept override {
    write(false);
    arm();
  }
  void arm() {
    executor_.add_timer(*this,
                        executor_.now() + (terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10)));
  }
  void write(bool last) noexcept {
    const basic_run_stats<T> s = account_.snapshot();
    std::fprintf(stderr, "%s%ld s: %s, waited %.1f%%%s", terminal_ ? "\r\x1b[K" : "", static_cast<long>(s.seconds),
                 s.rates().c_str(), 100 * s.waited, terminal_ && !last ? "" : "\n");
  }

  executor& executor_;
  const run_account<T>& account_;
  const bool terminal_;
  bool shown_ = false;
};

}  // namespace millrace::detail
