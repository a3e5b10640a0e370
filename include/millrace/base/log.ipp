// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/base/log.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

class process_log {
 public:
  constexpr process_log() noexcept = default;
  std::mutex mutex;  // not for the default sink: a child of fork() may log, whatever other threads did
  std::atomic<bool> has_sink{false};
  log_function sink;
};
/// Constant-initialized, and its destructor does nothing: a loop may still log while the program ends.
inline constinit process_log log_of_process;

MILLRACE_INLINE void log_to_process(const log_record& record) noexcept {
  if (log_of_process.has_sink.load(std::memory_order_acquire)) {
    const std::lock_guard lock(log_of_process.mutex);
    if (log_of_process.sink != nullptr) return log_of_process.sink(record);
  }
  // On a terminal the program may have written a part of a line: as many blanks as a row has end in the next row then,
  // and in this one if it is empty. One call of write(2), so that nothing comes between.
  ::winsize of = {};
  const bool sized = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &of) == 0 && of.ws_col > 0;
  std::fprintf(stderr, "%*s%s%.*s\n", sized ? of.ws_col : 0, "", sized ? "\r" : "",
               static_cast<int>(record.text.size()), record.text.data());
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void set_log(log_function sink) noexcept {
  const std::lock_guard lock(detail::log_of_process.mutex);
  detail::log_of_process.sink = sink;
  detail::log_of_process.has_sink = sink != nullptr;
}

}  // namespace millrace
