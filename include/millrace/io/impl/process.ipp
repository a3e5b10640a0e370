// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/io/detail/shell_process.hpp>
#include <millrace/io/process.hpp>

namespace millrace {

MILLRACE_COROUTINE_BODY task<process_result> run_process(std::string command, duration longest, std::size_t limit) {
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
