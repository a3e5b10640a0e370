// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/callback.hpp>
#include <millrace/version.hpp>

/// \file
/// The log: all messages of the library go to one sink of the process, which a program may replace.
///
///     mill::set_log([](const mill::log_record& r) { my_log(to_text(r.level), r.text); });
///
/// runtime_options::log is one for the lines of that runtime alone. Not in the log: exceptions, and the sentence with
/// which a broken invariant aborts.

namespace millrace::inline MILLRACE_ABI {

enum class log_level : unsigned char {
  info,     ///< choices and progress: placement, loops, ranks
  warning,  ///< something is lost, refused, guessed or slower than it could be; the run goes on
  error,    ///< something has failed that the program sees as an exception, or nowhere else
};

/// "info", "warning", "error".
constexpr const char* to_text(log_level level) noexcept {
  return level == log_level::info ? "info" : level == log_level::warning ? "warning" : "error";
}

/// One thing that a log_record says, for programs: name and value. Names: "stage", "shard", "offset", "key", "reason",
/// "rank", "host".
struct log_field {
  const char* name;
  std::string_view value;
};

/// A message of the library: a whole line for people, without its end, that begins with "millrace: " (a stage table has
/// several lines), and parts of it as fields. Never a secret. The views are valid during the call.
class log_record {
 public:
  log_record(log_level l, std::string_view line, const log_field* begin = nullptr, std::size_t count = 0) noexcept
      : level(l), text(line), fields(begin), field_count(count) {}

  log_level level;
  std::string_view text;
  const log_field* fields;
  std::size_t field_count;

  /// The value of the field of that name; empty if there is none.
  std::string_view field(std::string_view name) const noexcept {
    for (std::size_t i = 0; i < field_count; ++i) {
      if (fields[i].name == name) return fields[i].value;
    }
    return {};
  }
};

/// A sink. Called on any thread, for one record at a time; it must not throw, log, or wait for a run.
using log_function = callback<void(const log_record& record)>;

/// Replaces the sink of the process; null: the default, which writes the text to standard error, on a terminal in a row
/// of its own. Any thread; when it returns the former sink is not called any more. An object that the sink refers to
/// must live until then, or until the program ends.
void set_log(log_function sink) noexcept;

namespace detail {
/// Gives a record to the sink of the process.
void log_to_process(const log_record& record) noexcept;
}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/log.ipp>
#endif
