// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/base/log.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// So many different lines are remembered.
inline constexpr std::size_t most_lines_said = 1024;

/// Hashes of the lines that this process has logged; 0 is a free entry, and the last one tells that there was no other.
/// The only state that pipelines of a process share implicitly: constant-initialized and never destroyed, as a loop may
/// still log while the program ends.
inline constinit std::atomic<std::uint64_t> lines_said[most_lines_said + 1]{};

/// Returns true if this process logs `line` for the first time. For facts about the process rather than about one
/// pipeline: a training makes a pipeline for every epoch, and must not log the same line a thousand times. Thread-safe:
/// one of several concurrent callers gets true. Once most_lines_said are remembered, new ones get false, and a last
/// line in the log of the process says so: a training over damaged data must not fill a disk with lines that are said
/// once.
bool first_time(std::string_view line) noexcept;

/// Logs an unusual property of the data at `at`, if it is the first line of that `kind`. In the log of the process:
/// callers run on any thread and know no runtime whose log they could use.
void say_first(std::string_view kind, const std::string& text, const where& at);

/// Logs an error's text, with its place as fields, in the log of the process.
void log_error_line(log_level level, const error& e);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline bool first_time(std::string_view line) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : line) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  if (hash == 0) hash = 1;
  for (std::size_t i = 0; i < most_lines_said; ++i) {
    std::uint64_t there = 0;
    std::atomic<std::uint64_t>& place = lines_said[(hash + i) % most_lines_said];
    if (place.compare_exchange_strong(there, hash, std::memory_order_relaxed)) return true;
    if (there == hash) return false;
  }
  if (lines_said[most_lines_said].exchange(1, std::memory_order_relaxed) == 0) {
    log_to_process(log_record(log_level::warning,
                              "millrace: 1024 different lines of those that are logged once are in the log; further "
                              "ones are left out"));
  }
  return false;
}

inline void log_error_line(log_level level, const error& e) {
  const std::string line = std::string("millrace: ") + e.what();
  const std::string offset = e.offset() ? std::to_string(*e.offset()) : std::string();
  const log_field fields[] = {{"shard", e.object()}, {"offset", offset}, {"key", e.key()}, {"reason", e.reason()}};
  log_to_process(log_record(level, line, fields, 4));
}

inline void say_first(std::string_view kind, const std::string& text, const where& at) {
  if (first_time(kind)) log_error_line(log_level::warning, error(text, at));
}

}  // namespace millrace::detail
