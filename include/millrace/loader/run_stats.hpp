// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/data/lost_shard.hpp>

namespace millrace {

/// One line of the stage table: a place in the pipeline. Shares are of the time since the training thread took the
/// first item, and of the run so far before that.
class stage_stats {
 public:
  std::string name;              ///< "map #2" for the second of one name, "stage 3" for the third line when it has none
  std::int64_t items = 0;        ///< handed to the next stage
  std::int64_t failed = 0;       ///< left out by the stage's failure_policy
  std::int64_t bytes = 0;        ///< of its items, where their type has byte_size()
  double busy = 0;               ///< share of the time that the stage's code was on the loop
  double pool = 0;               ///< seconds of pool threads per second
  double starved = 0;            ///< share of the time that it waited for a stage before it
  double waiting = 0;            ///< share of the time that it was asked and waited for its own I/O or pool jobs
  double blocked = 0;            ///< share of the time that it had an item ready and nobody asked
  const char* advice = nullptr;  ///< what helps when it waits for its own I/O; empty: nothing, null: not known
};

/// What a run has done so far: cheap to take at any moment, from any thread.
///
/// The time to the first item is a figure of its own, and no wait: listing, connections and the first parts are paid
/// for once. What is said of waits, and of stages, is of the time since then.
template <class = void>
class basic_run_stats {
 public:
  double seconds = 0;      ///< since the run began, or its whole length once it has ended
  double first_after = 0;  ///< seconds from its beginning to the first item; 0: none was taken
  std::int64_t items = 0;  ///< taken by the training thread: batches, where the pipeline makes batches
  /// In those batches: vectors, host_batch, device_batch, line_batch, what has `sample_count(item)`. 0: not known.
  std::int64_t samples = 0;
  /// That came into the pipeline: what fetch() got from its store, or else the first items that have byte_size().
  std::int64_t bytes = 0;
  double waited = 0;  ///< share of the time since the first item that the training thread waited for the next one
  std::int64_t next_p50_ns = 0;  ///< time to next item at the training thread, without the first
  std::int64_t next_p99_ns = 0;
  std::int64_t next_max_ns = 0;
  std::vector<stage_stats> stages;  ///< sources first
  std::vector<lost_shard> lost;     ///< what epochs() could not have and was told to bear; of pipeline_run::stats()

  /// The table that is shown at the end of a run, the sentence about the bottleneck included.
  std::string table() const {
    std::string text;
    char line[256];
    int width = 16;
    for (const stage_stats& s : stages) {
      if (static_cast<int>(s.name.size()) > width) width = static_cast<int>(s.name.size() < 32 ? s.name.size() : 32);
    }
    std::snprintf(line, sizeof line, "%-*s %9s %10s %10s %7s %7s %8s %8s %8s\n", width, "stage", "items", "items/s",
                  "bytes/s", "busy", "pool", "starved", "waiting", "blocked");
    text += line;
    for (const stage_stats& s : stages) {
      std::snprintf(line, sizeof line, "%-*.*s %9s %10s %10s %6.1f%% %6.2fx %7.1f%% %7.1f%% %7.1f%%\n", width, width,
                    s.name.c_str(), format_count(static_cast<double>(s.items)).c_str(),
                    format_count(per_second(s.items)).c_str(),
                    s.bytes > 0 ? format_bytes(per_second(s.bytes)).c_str() : "-", 100 * s.busy, s.pool,
                    100 * s.starved, 100 * s.waiting, 100 * s.blocked);
      text += line;
    }
    for (const stage_stats& s : stages) {
      if (s.failed == 0) continue;
      std::snprintf(line, sizeof line, "%.32s left out %lld of %lld items that failed\n", s.name.c_str(),
                    static_cast<long long>(s.failed), static_cast<long long>(s.items + s.failed));
      text += line;
    }
    for (std::size_t i = 0; i < lost.size() && i < 10; ++i) {
      text += "lost " + std::to_string(lost[i].samples) + " samples of " + lost[i].shard + ": " + lost[i].reason + '\n';
    }
    if (lost.size() > 10) text += "and samples of " + std::to_string(lost.size() - 10) + " more shards\n";
    text += "training thread: " + rates() + " in " + in_seconds(seconds);
    if (items > 0) text += ", the first after " + in_seconds(first_after);
    text += '\n';
    if (items > 1) {
      std::snprintf(line, sizeof line, "next item: p50 %.2f ms, p99 %.2f ms, max %.2f ms; waited %.1f%% of %s\n",
                    static_cast<double>(next_p50_ns) * 1e-6, static_cast<double>(next_p99_ns) * 1e-6,
                    static_cast<double>(next_max_ns) * 1e-6, 100 * waited, in_seconds(steady()).c_str());
      text += line;
    }
    text += verdict();
    text += '\n';
    return text;
  }

  /// What the training thread took and what came in for it, as in the progress line:
  /// "480 batches, 30.7k samples (2.56k/s), 120.00 MB/s".
  std::string rates() const {
    std::string text = format_count(static_cast<double>(items));
    if (samples > 0) {
      text += " batches, " + format_count(static_cast<double>(samples)) + " samples (" +
              format_count(per_second(samples)) + "/s)";
    } else {
      text += " items (" + format_count(per_second(items)) + "/s)";
    }
    if (bytes > 0) text += ", " + format_bytes(per_second(bytes)) + "/s";
    return text;
  }

  /// One sentence: what holds the run back, and what to change.
  std::string verdict() const {
    if (items == 0) return "the training thread has taken no item";
    const bool waits = waited >= 0.05;
    if (!tells()) {
      return waits || items == 1
                 ? "too short to tell what holds the run back: " + in_seconds(steady()) + " since the first item"
                 : "the training thread was not kept waiting after the first item";
    }
    if (!waits) return "the training thread is the bottleneck: the pipeline keeps up with it";
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
    if (slow == nullptr) return "the pipeline is the bottleneck, and no stage of it shows why";
    if (loop > 0.9) {
      return "the loop thread is full, most of all by " + slow->name +
             ": move work to a pool, by map_concurrent(f, {.on = pool}), or transfers to more loops, "
             "run_options::loops";
    }
    if (slow->pool > 0.5) return "bottleneck: " + slow->name + " (its pool jobs): more cores, or less work per item";
    if (slow->waiting <= slow->busy) return "bottleneck: " + slow->name;
    if (slow->pool > 0)
      return "bottleneck: " + slow->name + " waits for its pool jobs, whose threads get no core or have other jobs";
    const std::string waiting = "bottleneck: " + slow->name + " waits for its own I/O";
    if (slow->advice == nullptr) return waiting + ": let more of it be under way at once, by map_concurrent()";
    return *slow->advice == 0 ? waiting : waiting + ": " + slow->advice;
  }

 private:
  double per_second(std::int64_t n) const { return seconds > 0 ? static_cast<double>(n) / seconds : 0; }
  /// Since the first item.
  double steady() const { return seconds - first_after; }
  /// Whether what has been since then says anything.
  bool tells() const { return (items > 10 && steady() >= 0.1) || (items > 1 && steady() >= 2); }
  static std::string in_seconds(double s) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f s", s);
    return text;
  }
};
using run_stats = basic_run_stats<>;

}  // namespace millrace
