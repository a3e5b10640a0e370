// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
class run_stats {
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
  std::vector<lost_shard> lost;     ///< what epochs() could not read and was told to tolerate; of pipeline_run::stats()

  /// The table that is shown at the end of a run, the sentence about the bottleneck included.
  std::string table() const;

  /// What the training thread took and what came in for it, as in the progress line:
  /// "480 batches, 30.7k samples (2.56k/s), 120.00 MB/s".
  std::string rates() const;

  /// One sentence: what holds the run back, and what to change.
  std::string verdict() const;

 private:
  double per_second(std::int64_t n) const { return seconds > 0 ? static_cast<double>(n) / seconds : 0; }
  /// Since the first item.
  double steady() const { return seconds - first_after; }
  /// Whether what has been since then says anything.
  bool tells() const { return (items > 10 && steady() >= 0.1) || (items > 1 && steady() >= 2); }
  static std::string in_seconds(double s);
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/impl/run_stats.ipp>
#endif
