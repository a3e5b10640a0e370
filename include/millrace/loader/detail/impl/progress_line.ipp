// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>

#include <millrace/base/compiler.hpp>
#include <millrace/loader/detail/progress_line.hpp>

namespace millrace::detail {

MILLRACE_INLINE progress_line::progress_line(executor& ex, const run_account& account, progress show,
                                             std::uint32_t rank)
    : executor_(ex), account_(account), terminal_(::isatty(STDERR_FILENO) == 1) {
  shown_ = show == progress::on || (show == progress::automatic && terminal_ && rank == 0);
  if (shown_) arm();
}

MILLRACE_INLINE progress_line::~progress_line() {
  if (!shown_) return;
  executor_.remove_timer(*this);
  write(true);
  std::fputs(account_.snapshot().table().c_str(), stderr);
}

MILLRACE_INLINE void progress_line::fire() noexcept {
  write(false);
  arm();
}

MILLRACE_INLINE void progress_line::arm() {
  executor_.add_timer(*this, executor_.now() + (terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10)));
}

MILLRACE_INLINE void progress_line::write(bool last) noexcept {
  const run_stats s = account_.snapshot();
  std::fprintf(stderr, "%s%ld s: %s, waited %.1f%%%s", terminal_ ? "\r\x1b[K" : "", static_cast<long>(s.seconds),
               s.rates().c_str(), 100 * s.waited, terminal_ && !last ? "" : "\n");
}

}  // namespace millrace::detail
