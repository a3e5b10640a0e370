// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include <millrace/base/detail/wipe.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/io/detail/shell_process.hpp>

namespace millrace {

/// What a process wrote to its standard output, and how it ended. Overwritten on destruction: it may be secrets.
class process_result {
 public:
  process_result() = default;
  process_result(process_result&&) noexcept = default;
  process_result& operator=(process_result&&) = delete;
  ~process_result() { detail::wipe(output); }

  std::string output;     ///< bytes of its standard output
  int exit_status = -1;   ///< -1: ended by a signal
  bool too_long = false;  ///< it wrote more than was allowed, and was killed
};

/// `process_result r = co_await run_process(command, longest, limit);` runs `sh -c command` to its end.
///
/// Its standard input is empty, its standard error that of this program. Of its standard output `limit` bytes are read;
/// more, a time-out, or dropping the task kills the process and everything that it has started. The loop, which must be
/// a real one, is never held up: the end is reported by the kernel (a pidfd; asked for by a timer before Linux 5.3),
/// and nothing waits for a process that has been killed and has not ended yet. Any number may run at once. Throws
/// io_error where it cannot be started, or is not done within `longest` (code() is ETIMEDOUT then).
template <class = void>
task<process_result> run_process(std::string command, duration longest, std::size_t limit) {
  executor& ex = co_await this_executor();
  const time_point due = ex.now() + longest;
  process_result result;
  detail::shell_process<> process(ex, command);
  detail::wipe(command);
  bool open = true;
  for (;;) {
    const bool ended = process.ended(result.exit_status);  // before the last look: what it wrote is in the pipe by then
    if (open) open = process.read_into(result.output, limit, result.too_long);
    if (ended || result.too_long) break;
    const time_point now = ex.now();
    if (now >= due) {
      throw io_error(ETIMEDOUT, "the process was not done within " +
                                    std::to_string(longest / std::chrono::milliseconds(1)) + " ms");
    }
    time_point wake = due;
    // Without a descriptor for its end, a closed output says that the end is near, and then time is asked.
    if (process.pidfd() < 0) wake = std::min(due, now + duration(10'000'000));
    const detail::either_readable wait(open ? process.output() : -1, process.pidfd(), wake);
    co_await wait;
  }
  co_return std::move(result);
}

}  // namespace millrace
