// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/retry/host_stats.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::string host_stats::text() const {
  const auto bytes = [](double n) { return format_bytes(n); };
  std::string line = name + ": up to " + std::to_string(requests) + (requests == 1 ? " request" : " requests") +
                     " of up to " + bytes(static_cast<double>(part)) + " at a time, " + std::to_string(in_flight) +
                     " in flight";
  if (!measured) return line + "; not measured yet";
  char first[64];
  std::snprintf(first, sizeof first, "; measured: %.1f ms to the first byte, ", 1e3 * first_byte);
  line += first + bytes(connection_rate) + "/s on a connection";
  if (rate > 0) line += ", " + bytes(rate) + "/s in all";
  switch (limit) {
    case read_limit::none:
    case read_limit::shards:  // of a reader
    case read_limit::disk:    // likewise
      break;
    case read_limit::memory:
      return line + "; the limit: the memory of its readers";
    case read_limit::requests:
      return line + "; the limit: the rate of a connection, with as many as .requests allows";
    case read_limit::link:
      return line + "; the limit: the link, or what the store sends in all";
  }
  return line;
}

}  // namespace millrace
