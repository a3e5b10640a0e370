// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>

#include <millrace/base/clock.hpp>
#include <millrace/coro/runtime_counts.hpp>

namespace millrace::inline MILLRACE_ABI {

class stage_recorder;

/// The metrics of one stage of a running pipeline. Only shown: nothing is decided by them. Written by the loop's
/// thread, readable from any thread at any moment (the set is no snapshot). Counts are exact. Times are nanoseconds of
/// the executor's metrics_clock: exact on virtual time and if turns are long; right to about 1% of the run, after
/// some seconds, if they are short.
///
/// A stage is *busy* (its code runs on the loop), *starved* (it asked a stage before it and waits), *blocked* (it has
/// yielded an item and is not asked for the next one), or waiting for its own I/O or pool jobs:
/// asked - starved - busy. Stages that work ahead are busy and starved also while they are not asked.
///
/// If several generators are one stage, as the pipelines that interleave() has open, it is asked while any of them is,
/// starved while any of them is, and blocked while none is asked: no time is counted twice.
class stage_record {
 public:
  using counter = std::atomic<std::int64_t>;

  stage_record(const char* stage_name, const char* what_helps, const stage_record* consumer,
               stage_recorder* recorder) noexcept
      : name(stage_name), advice(what_helps), parent(consumer), owner(recorder) {}

  /// The name of a stage that is shown by its number in the table.
  static constexpr const char* numbered = "";

  const char* const name;
  const char* const advice;          ///< helps when it waits for its own I/O; null: not known
  const stage_record* const parent;  ///< the stage that consumes this one; null for the sink
  stage_recorder* const owner;
  counter items{0};       ///< yielded to the next stage
  counter failed{0};      ///< left out by the stage's failure_policy
  counter bytes{0};       ///< of those items, if their type has byte_size()
  counter read{0};        ///< bytes that it has read from a store, for fetch()
  counter reread{0};      ///< parts that it has read again because they had come damaged
  counter busy_ns{0};     ///< on the loop thread
  counter pool_ns{0};     ///< on the compute pool, summed over its threads
  detail::duration_histogram jobs;  ///< each of its jobs there
  /// The pool on which the stage's jobs run, and how many of them may run at once; 0: not known. Set when it starts.
  counter pool_threads{0}, pool_cores{0}, pool_limit{0};
  /// Jobs that found the threads taken by jobs of others when they were submitted; and, of the measured jobs (see
  /// pool_state::work()), their time, and the part of it that they waited or slept.
  counter crowded_jobs{0}, measured_ns{0}, slept_ns{0};
  counter jobs_in_pool{0};  ///< now: waiting for a thread, or on one
  std::atomic<bool> pool_given{false};          ///< by an option of the stage; if not, it is the runtime's
  std::atomic<const char*> more_jobs{nullptr};  ///< the option that lets more of them run at once: a literal, or null
  /// How often a stage that works on several items found no room for one more: by their number, by their bytes.
  counter full_by_number{0}, full_by_bytes{0};
  /// A stage that reads by ranges: how many it may have in flight now, and their maximum length; and how often a read
  /// ended while the consumer waited and no more could be in flight, by the bound that prevented it.
  counter reads{0}, read_part{0}, kept_by_memory{0}, kept_by_requests{0}, kept_by_link{0}, kept_by_shards{0};
  counter kept_by_disk{0};  ///< likewise, of reads of a local disk (storage::is_local())
  /// Its store, as measured: time to the first byte, bytes per second of one connection; 0: not known.
  counter read_first_ns{0}, read_rate{0};
  /// Its bounds, as its options have them: objects open, ranged reads, bytes; 0: none, or not known.
  counter own_shards{0}, own_requests{0}, own_bytes{0};
  std::atomic<const char*> bytes_option{nullptr};  ///< the name of the last, a literal: ".window"
  /// to_device(): its slots, and how often it waited for one that held a copy under way, work of the device, or a batch
  /// that the consumer kept.
  counter slots{0}, kept_by_copy{0}, kept_by_device{0}, kept_by_consumer{0};
  counter starved_ns{0};  ///< waiting for the stage before it
  counter asked_ns{0};    ///< from being asked to yielding
  counter blocked_ns{0};  ///< from yielding to being asked again

  /// Adds without a locked instruction: only for counters that one thread writes.
  static void add(counter& c, std::int64_t n) noexcept {
    c.store(c.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  /// Like the above for a counter of `stage`, such as `&stage_record::read`; does nothing if no metrics are kept
  /// (null).
  static void add(stage_record* stage, counter stage_record::*which, std::int64_t n) noexcept {
    if (stage != nullptr) add(stage->*which, n);
  }

  /// Bounds of its reads in flight, as its options set them, for run_stats::verdict(). The first call counts.
  void reads_within(std::size_t shards, std::size_t requests, std::size_t bytes_then, const char* option) noexcept {
    if (bytes_option.load(std::memory_order_relaxed) != nullptr) return;
    own_shards.store(static_cast<std::int64_t>(shards), std::memory_order_relaxed);
    own_requests.store(static_cast<std::int64_t>(requests), std::memory_order_relaxed);
    own_bytes.store(static_cast<std::int64_t>(bytes_then), std::memory_order_relaxed);
    bytes_option.store(option, std::memory_order_relaxed);
  }

  /// Like reads_within(), for a stage that works on several items at once.
  void works_within(std::size_t limit, std::size_t bytes_then) noexcept {
    pool_limit.store(static_cast<std::int64_t>(limit), std::memory_order_relaxed);
    own_bytes.store(static_cast<std::int64_t>(bytes_then), std::memory_order_relaxed);
  }

  // ---- reports of its generators, at time t

  /// One of them was asked, and had or had not yielded an item before.
  void asked(std::int64_t t, bool after_item) noexcept {
    if (asked_ == 0) {
      if (yielded_ > 0) add(blocked_ns, t - since_);
      since_ = t;
    }
    ++asked_;
    if (after_item) --yielded_;
  }
  /// It yielded an item of so many bytes; less than 0: the end or an error.
  void answered(std::int64_t t, std::int64_t item_bytes) noexcept {
    if (item_bytes >= 0) {
      counted(item_bytes);
      ++yielded_;
    }
    asked_no_more(t);
  }
  /// It was asked and yielded an item of so many bytes while the clock was stopped: only the counts change.
  void counted(std::int64_t item_bytes) noexcept {
    add(items, 1);
    if (item_bytes != 0) add(bytes, item_bytes);
  }
  /// It is destroyed, while it was asked or after it had yielded an item.
  void dropped(std::int64_t t, bool while_asked, bool after_item) noexcept {
    if (after_item) --yielded_;
    if (while_asked) asked_no_more(t);
  }
  /// The stage begins and ends to wait for one before it.
  void wait_began(std::int64_t t) noexcept {
    if (waits_++ == 0) starved_since_ = t;
  }
  void wait_ended(std::int64_t t) noexcept {
    if (--waits_ == 0) add(starved_ns, t - starved_since_);
  }

  // ---- since the end of start-up

  /// Nanoseconds since mark(), or in all if it was not called.
  class times {
   public:
    std::int64_t busy = 0, pool = 0, starved = 0, asked = 0, blocked = 0;
    std::int64_t items = 0;  ///< how many it has yielded
  };
  times since_mark() const noexcept;
  /// Nanoseconds until mark() in which it was asked and did not wait for a stage before it; 0 if it was not called.
  std::int64_t own_before_mark() const noexcept {
    return marked_asked_.load(std::memory_order_relaxed) - marked_starved_.load(std::memory_order_relaxed);
  }
  /// By any thread, one at a time.
  void mark() noexcept;

 private:
  times now() const noexcept;
  void asked_no_more(std::int64_t t) noexcept {
    if (--asked_ > 0) return;
    add(asked_ns, t - since_);
    since_ = t;
  }

  // The loop thread's alone.
  int asked_ = 0;           // generators that were asked and have not answered
  int yielded_ = 0;         // generators that have yielded an item and were not asked since
  int waits_ = 0;           // requests of this stage that are not answered
  std::int64_t since_ = 0;  // when asked_ became more than 0, or 0 again
  std::int64_t starved_since_ = 0;
  counter marked_busy_{0}, marked_pool_{0}, marked_starved_{0}, marked_asked_{0}, marked_blocked_{0};
  counter marked_items_{0};
};

/// The records of one pipeline, in the order in which stages started (sink first). Records live as long as the
/// recorder.
class stage_recorder {
 public:
  stage_recorder() noexcept : began_(monotonic_ns()) {}
  stage_recorder(const stage_recorder&) = delete;
  stage_recorder& operator=(const stage_recorder&) = delete;

  /// The record of a generator called `name` that `parent` asks for the first time; `made` is when, by monotonic_ns(),
  /// it got its name. Texts must outlive the recorder.
  ///
  /// A generator that was made before the recorder is a stage of the pipeline, and gets its own record, even if others
  /// have the same name. Later generators are made by a running stage, again and again (an untar() for each shard): all
  /// with one name and parent share one record.
  stage_record* record_for(const char* name, const char* advice, const stage_record* parent, std::int64_t made);
  /// The record that all of that name and parent share; made on first use.
  stage_record* find_or_add(const char* name, const stage_record* parent) {
    std::lock_guard lock(mutex_);
    return find(name, nullptr, parent);
  }

  /// Calls `visit(record)` for each record, sink first.
  template <class Visit>
  void for_each(Visit&& visit) const {
    std::lock_guard lock(mutex_);
    for (const link* l = first_.get(); l != nullptr; l = l->next.get()) visit(l->record);
  }
  /// An exception leaves a coroutine of that stage. The first stage that it leaves is the one that threw it. For the
  /// executor's thread, as are the next two functions.
  void failed(const std::exception_ptr& failure, const stage_record& in) noexcept {
    if (failure == failure_) return;
    failure_ = failure;
    failed_in_ = &in;
  }
  void forget_failure() noexcept { failure_ = nullptr; }
  /// The stage that threw `failure`; null if that is not known.
  const stage_record* stage_of(const std::exception_ptr& failure) const noexcept {
    return failure == failure_ ? failed_in_ : nullptr;
  }
  /// Start-up has ended: see stage_record::since_mark().
  void mark() noexcept {
    std::lock_guard lock(mutex_);
    for (link* l = first_.get(); l != nullptr; l = l->next.get()) l->record.mark();
  }

 private:
  /// The first sources of a large merge() have lines of their own; the rest share one.
  static constexpr int most_alike = 16;

  struct link {
    link(const char* name, const char* advice, const stage_record* parent, stage_recorder* home, bool is_own)
        : record(name, advice, parent, home), own(is_own) {}
    bool called(const char* name, const stage_record* parent) const noexcept {
      return record.parent == parent && std::strcmp(record.name, name) == 0;
    }
    stage_record record;
    const bool own;  // of one generator
    std::unique_ptr<link> next;
  };

  stage_record* find(const char* name, const char* advice, const stage_record* parent);
  stage_record* add(const char* name, const char* advice, const stage_record* parent, bool own);

  const std::int64_t began_;
  std::exception_ptr failure_;  // the latest
  const stage_record* failed_in_ = nullptr;
  mutable std::mutex mutex_;
  std::unique_ptr<link> first_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/coro/stage_record.ipp>
#endif
