// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <initializer_list>
#include <string>

#include <millrace/base/log.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Logs a line, given without its end, where the loop's runtime logs.
void log_line(const executor& ex, const std::string& line, log_level level = log_level::warning,
              std::initializer_list<log_field> fields = {});
/// Logs which stage threw an exception that ends a run, unless it is an `error`, which names its place.
void log_foreign_exception(const executor& ex, const std::string& stage, const std::exception_ptr& failure);
/// For a stage that has read something again because it had come damaged: counts it, and logs it the first time and
/// whenever the number in the run has doubled.
void log_second_reading(const coroutine_context& reader, const std::string& what);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/coro/detail/log.ipp>
#endif
