// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/stage_record.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void log_line(const executor& ex, const std::string& line, log_level level,
                              std::initializer_list<log_field> fields) {
  ex.runtime().log(log_record(level, line, fields.begin(), fields.size()));
}

MILLRACE_INLINE void log_foreign_exception(const executor& ex, const std::string& stage,
                                           const std::exception_ptr& failure) {
  std::string what;
  try {
    std::rethrow_exception(failure);
  } catch (const error&) {
    return;
  } catch (...) {  // it names no place
    what = error(text_of(failure)).what();  // escaped
  }
  log_line(ex, "millrace: the run is ended by an exception of the stage " + stage + ": " + what, log_level::error,
           {{"stage", stage}, {"reason", what}});
}

MILLRACE_INLINE void log_second_reading(const coroutine_context& reader, const std::string& what) {
  stage_record::add(reader.stage(), &stage_record::reread, 1);
  const std::int64_t so_far = reader.run().add_second_reading();
  if ((so_far & (so_far - 1)) != 0) return;
  std::string line = "millrace: read once more, over another connection: " + what;
  if (so_far > 1) line += " (" + std::to_string(so_far) + " times in this run)";
  log_line(reader.get_executor(), line, log_level::warning, {{"reason", what}});
}

}  // namespace millrace::detail
