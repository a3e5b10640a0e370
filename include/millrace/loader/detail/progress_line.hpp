// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/loader/detail/run_account.hpp>
#include <millrace/loader/run_options.hpp>

namespace millrace::detail {

/// The progress line: a timer of the loop that writes one line to standard error, in place on a terminal; the stage
/// table at the end.
class progress_line final : private timer_node {
 public:
  /// `rank`: the index of the process whose run it is.
  progress_line(executor& ex, const run_account& account, progress show, std::uint32_t rank);
  MILLRACE_INLINE ~progress_line() override;

 private:
  MILLRACE_INLINE void fire() noexcept override;
  void arm();
  void write(bool last) noexcept;

  executor& executor_;
  const run_account& account_;
  const bool terminal_;
  bool shown_ = false;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/detail/impl/progress_line.ipp>
#endif
