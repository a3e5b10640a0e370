// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <millrace/base/error.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/sync/any_of.hpp>

namespace millrace::inline MILLRACE_ABI {

/// with_timeout() was over before its task.
class timeout_error : public error {
 public:
  using error::error;
};

/// Runs `t`, and drops it if it takes longer than `limit` of the executor's clock: then throws timeout_error. A result
/// that is ready when the time is up counts. The task starts through the run queue. Dropping the await drops the task.
template <class T>
task<T> with_timeout(duration limit, task<T> t) {
  auto first = co_await any_of(std::move(t), sleep_for(limit));
  if (first.index() != 0) throw timeout_error("timed out after " + std::to_string(limit.count() / 1000000) + " ms");
  if constexpr (!std::is_void_v<T>) co_return std::get<0>(std::move(first));
}

}  // namespace millrace
