// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <millrace/coro/runtime_counts.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/retry/host_stats.hpp>

namespace millrace::inline MILLRACE_ABI {

/// State of to_device()'s slots when it waits for one.
enum class slot_limit : unsigned char {
  none,      ///< it does not wait
  copy,      ///< copies that are under way
  device,    ///< work of the device on earlier batches: the training step runs there
  consumer,  ///< batches that the program keeps
};

/// One line of the stage table. Shares are of the time since the training thread took the
/// first item, and of the run so far before that.
class stage_stats {
 public:
  std::string name;              ///< "map #2" for the second of one name, "stage 3" for the third line when it has none
  std::int64_t items = 0;        ///< yielded to the next stage
  std::int64_t failed = 0;       ///< left out by the stage's failure_policy
  std::int64_t bytes = 0;        ///< of its items, where their type has byte_size()
  std::int64_t reread = 0;       ///< parts that it has read again because they had come damaged
  duration_stats jobs;           ///< each of its jobs on a pool that has ended: decoding, unpacking
  double busy = 0;               ///< share of the time that the stage's code was on the loop
  double busy_each = 0;          ///< seconds that it was on the loop for each of its items
  double pool = 0;               ///< seconds of pool threads per second
  double starved = 0;            ///< share of the time that it waited for a stage before it
  double waiting = 0;            ///< share of the time that it was asked and waited for its own I/O or pool jobs
  double blocked = 0;            ///< share of the time that it had yielded an item and was not asked
  const char* advice = nullptr;  ///< helps when it waits for its own I/O; empty: nothing, null: not known
  unsigned pool_threads = 0;     ///< of the pool on which its jobs run; 0: none, or not known
  unsigned pool_cores = 0;       ///< how many threads of it could have a core; 0: not known
  bool pool_given = false;       ///< the pool is from its options (.on); if not, it is the runtime's
  std::size_t pool_limit = 0;    ///< most of its jobs that may run at once; 0: any number
  const char* more_jobs = nullptr;  ///< the option that lets more of them run at once; empty: none, null: not known
  std::size_t reads = 0;         ///< ranged reads in flight, as chosen by the store's measurements; 0: it reads none
  std::size_t read_part = 0;     ///< bytes of one of them, at most, chosen likewise
  read_limit limit = read_limit::none;  ///< of these reads
  double read_first_byte = 0;    ///< seconds to the first byte of one, as measured; 0: not known
  double read_rate = 0;          ///< bytes per second of one connection after that, likewise
  bool bound_by_bytes = false;   ///< it is the bound in bytes, not that in items, that stops it from taking more
  std::size_t own_shards = 0;    ///< bounds of its options: objects open, 0: as many as there are requests for
  std::size_t own_requests = 0;  ///< ranged reads in flight; 0: not known, or it reads none
  std::size_t own_bytes = 0;     ///< bytes, of `bytes_option`; 0: not known
  const char* bytes_option = nullptr;  ///< ".window", ".bytes"; null: .bytes
  double jobs_slept = 0;         ///< share of the time of its pool jobs in which they slept or waited on their thread
  double jobs_crowded = 0;       ///< share of its pool jobs that found the threads taken by jobs of others
  std::size_t slots = 0;         ///< of to_device(); 0: of another stage
  slot_limit waits_for = slot_limit::none;  ///< likewise
  double before_first = 0;       ///< seconds until the first item in which it was asked and waited for no other stage
};

/// Counts that a runtime keeps of its requests, for all of its runs together, since it was made. Reasons name object,
/// offset and key, and no secret; empty: there was none.
class request_stats {
 public:
  duration_stats request;     ///< from when it was made, so with the wait for a connection, to the end of its answer
  duration_stats first_byte;  ///< from when it was sent to the first byte of its answer
  duration_stats part;        ///< ranged reads of stages, with their retries
  std::int64_t retries = 0;   ///< attempts after the first, of one request
  std::int64_t throttles = 0;  ///< of those, because the store asked for fewer requests (503, 429)
  std::int64_t hedges = 0;    ///< second requests for parts that were late
  std::int64_t resumed = 0;   ///< bodies that broke off and were continued
  std::int64_t skipped = 0;   ///< items that a failure_policy left out
  std::string last_retry;     ///< why the latest of them was repeated
  std::string last_throttle;
  std::string last_skipped;
};

/// Metrics of a run so far: cheap to take at any moment, from any thread.
///
/// The time to the first item is a figure of its own, and not a wait: listing, connections and the first parts are paid
/// for once. Waits, and the figures of stages, are of the time since then.
class run_stats {
 public:
  double seconds = 0;      ///< since the run began, or its whole length once it has ended
  double first_after = 0;  ///< seconds from its beginning to the first item; 0: none was taken
  std::int64_t items = 0;  ///< taken by the training thread: batches, where the pipeline makes batches
  /// In those batches: vectors, host_batch, device_batch, line_batch, types with `samples_in_batch(item)`. 0: not
  /// known.
  std::int64_t samples = 0;
  /// Bytes that came into the pipeline: those that fetch() got from its store, or else those of the first stages whose
  /// items have byte_size().
  std::int64_t bytes = 0;
  training_place place;  ///< how far the training is, where the pipeline begins with epochs()
  std::uint64_t placed = 0;  ///< how many of its batches came after the first item; 0: not known
  double waited = 0;  ///< share of the time since the first item that the training thread waited for the next one
  std::int64_t next_p50_ns = 0;  ///< time to next item at the training thread, without the first
  std::int64_t next_p99_ns = 0;
  std::int64_t next_max_ns = 0;
  duration_stats steps;      ///< of the training thread: from getting an item to asking for the next one
  duration_stats waits;      ///< of the training thread for an item, without the first
  std::vector<stage_stats> stages;  ///< sources first
  /// The placement of the runtime's threads: "on NUMA node 1 (of 2), where the device at 0000:3b:00.0 is". Empty on a
  /// machine with one node, and with placement::off.
  std::string placement;
  std::vector<lost_shard> lost;     ///< samples that epochs() could not read and tolerated; of pipeline_run::stats()
  /// Measurements of the hosts of stores, and the numbers chosen for all runs of the runtime: as they are now.
  std::vector<host_stats> hosts;
  request_stats requests;  ///< of the whole runtime
  disk_cache_stats disk_cache;  ///< of all disk_cache() stores that were read through, since the runtime was made
  /// How often an address of a server began to be passed over, by connections of any run of the runtime, because it
  /// could not be connected to or was slower than the others.
  std::int64_t addresses_passed_over = 0;
  std::size_t loops = 0;        ///< of the runtime; 0: not known
  bool loops_by_cores = false;  ///< the runtime has chosen that number

  /// The table that is shown at the end of a run, including verdict().
  std::string table() const;

  /// The items taken by the training thread and the bytes read for them, as in a line of progress: "480 batches, 30.7k
  /// samples (2.56k/s), 120.00 MB/s".
  std::string rates() const;

  /// The text of a line of progress, without the time: place, rates(), the share of the time that the training thread
  /// waited, for which stage, and how long it will take: "epoch 3 of 90, batch 480 of 5004: 8.12k batches, 2.08M
  /// samples (2.56k/s), 280.00 MB/s, waited 7.1% for fetch, 48 h left".
  std::string progress() const;

  /// Seconds until the training ends, or the epoch where it is endless, at the rate so far; negative: not known.
  double left() const;

  /// One sentence: the stage that holds the run back, the use of its time, and the option to change, with a value to
  /// try and the one it has: "map_concurrent: .limit = 1 of 8 pool threads; try .limit = 16".
  std::string verdict() const;

  /// How many times as many items the training thread would take with a loader that never keeps it waiting: 1 where it
  /// does not wait. Computed over the time since the first item; at most 1,000, for a training thread that does nothing
  /// but wait.
  double headroom() const;

 private:
  double per_second(std::int64_t n) const { return seconds > 0 ? static_cast<double>(n) / seconds : 0; }
  /// Since the first item.
  double steady() const { return seconds - first_after; }
  /// True if that is long enough for a verdict.
  bool conclusive() const { return (items > 10 && steady() >= 0.1) || (items > 1 && steady() >= 2); }
  static std::string in_seconds(double s);
  /// The stage that is asked and neither yields nor waits for another one; null: there is none.
  const stage_stats* slowest() const;
  /// Seconds that the pipeline's threads need for an item, as far as the run shows it.
  double pace() const;
  /// The parts of verdict(): for a training thread that does not wait, and for a stage that is busy on the loop's
  /// thread, waits for its ranged reads, for its pool jobs, for slots.
  std::string step_verdict() const;
  std::string loop_verdict(const stage_stats& slow) const;
  std::string read_verdict(const stage_stats& slow) const;
  std::string pool_verdict(const stage_stats& slow) const;
  /// The remedy if a disk cache refuses most of its input; empty: none is needed.
  std::string cache_verdict() const;
  static std::string slot_verdict(const stage_stats& slow);
  /// The reason why the first item waited, if that was most of the run; else empty.
  std::string start_verdict() const;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/run_stats.ipp>
#endif
