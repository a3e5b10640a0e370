// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/wipe.hpp>
#include <millrace/coro/task.hpp>

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
MILLRACE_COROUTINE task<process_result> run_process(std::string command, duration longest, std::size_t limit);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/io/impl/process.ipp>
#endif
