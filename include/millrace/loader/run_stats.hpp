// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <millrace/base/units.hpp>

namespace millrace {

/// One line of the stage table.
class stage_stats {
 public:
  std::string name;
  std::int64_t items = 0;
  std::int64_t failed = 0;  ///< left out by the stage's failure_policy
  std::int64_t bytes = 0;
  double busy = 0;     ///< share of the run that the stage's code was on the loop
  double pool = 0;     ///< seconds of pool threads per second of the run
  double starved = 0;  ///< share of the run that it waited for the stage before it
  double waiting = 0;  ///< share of the run that it was asked and waited for its own I/O or pool jobs
  double blocked = 0;  ///< share of the run that it had an item ready and nobody asked
};

/// What a run has done so far: cheap to take at any moment, from any thread.
template <class = void>
class basic_run_stats {
 public:
  double seconds = 0;            ///< since the run began, or its whole length once it has ended
  std::int64_t items = 0;        ///< taken by the training thread
  std::int64_t bytes = 0;        ///< that came into the pipeline
  double waited = 0;             ///< share of the run that the training thread waited for an item
  std::int64_t next_p50_ns = 0;  ///< time to next item at the training thread
  std::int64_t next_p99_ns = 0;
  std::int64_t next_max_ns = 0;
  std::vector<stage_stats> stages;  ///< sources first

  /// The table that is shown at the end of a run, the sentence about the bottleneck included.
  std::string table() const {
    std::string text;
    char line[256];
    std::snprintf(line, sizeof line, "%-16s %9s %10s %10s %7s %7s %8s %8s %8s\n", "stage", "items", "items/s",
                  "bytes/s", "busy", "pool", "starved", "waiting", "blocked");
    text += line;
    for (const stage_stats& s : stages) {
      const double rate = seconds > 0 ? static_cast<double>(s.items) / seconds : 0;
      const double flow = seconds > 0 ? static_cast<double>(s.bytes) / seconds : 0;
      std::snprintf(line, sizeof line, "%-16.16s %9s %10s %10s %6.1f%% %6.2fx %7.1f%% %7.1f%% %7.1f%%\n",
                    s.name.c_str(), format_count(static_cast<double>(s.items)).c_str(), format_count(rate).c_str(),
                    s.bytes > 0 ? format_bytes(flow).c_str() : "-", 100 * s.busy, s.pool, 100 * s.starved,
                    100 * s.waiting, 100 * s.blocked);
      text += line;
    }
    for (const stage_stats& s : stages) {
      if (s.failed == 0) continue;
      std::snprintf(line, sizeof line, "%.16s left out %lld of %lld items that failed\n", s.name.c_str(),
                    static_cast<long long>(s.failed), static_cast<long long>(s.items + s.failed));
      text += line;
    }
    std::snprintf(line, sizeof line,
                  "next item: p50 %.2f ms, p99 %.2f ms, max %.2f ms; training thread waited %.1f%% of %.2f s\n",
                  static_cast<double>(next_p50_ns) * 1e-6, static_cast<double>(next_p99_ns) * 1e-6,
                  static_cast<double>(next_max_ns) * 1e-6, 100 * waited, seconds);
    text += line;
    text += verdict();
    text += '\n';
    return text;
  }

  /// One sentence: what holds the run back, and what to change.
  std::string verdict() const {
    if (waited < 0.05) {
      return items == 0 ? "the training thread has taken no item yet"
                        : "the training thread is the bottleneck: the pipeline keeps up with it";
    }
    double loop = 0;
    const stage_stats* slow = nullptr;
    double most = 0;
    for (const stage_stats& s : stages) {
      loop += s.busy;
      const double own = s.busy + s.waiting;  // asked, and not waiting for somebody else
      if (own > most) {
        most = own;
        slow = &s;
      }
    }
    if (slow == nullptr) {
      if (items == 0) return "the pipeline has given no item yet";
      return stages.empty()
                 ? "the pipeline is the bottleneck, and none of its stages has a name: give them one by named()"
                 : "the pipeline is the bottleneck, but none of its named stages";
    }
    if (loop > 0.9)
      return "the loop thread is full, most of all by " + slow->name + ": move work to the pool or use more loops";
    if (slow->pool > 0.5) return "bottleneck: " + slow->name + " (its pool jobs): more cores, or less work per item";
    if (slow->waiting > slow->busy && slow->pool > 0)
      return "bottleneck: " + slow->name + " waits for its pool jobs, whose threads get no core or have other jobs";
    if (slow->waiting > slow->busy)
      return "bottleneck: " + slow->name + " waits for its own I/O: raise its window or its limit";
    return "bottleneck: " + slow->name;
  }
};
using run_stats = basic_run_stats<>;

}  // namespace millrace
