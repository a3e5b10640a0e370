// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>

#include <millrace/base/clock.hpp>
#include <millrace/coro/detail/orphan_count.hpp>

namespace millrace {

class run_budget;
class stage_recorder;

/// What one stage of a running pipeline has done. Written by the loop thread only, readable from any thread at any
/// moment (the set is no snapshot). Counts are exact. Times are nanoseconds of the executor's account_clock: exact on
/// virtual time and where turns are long; right to about 1% of the run, after some seconds, where they are short.
///
/// A stage is *busy* (its code runs on the loop), *starved* (it asked a stage before it and waits), *blocked* (it has
/// handed over an item and nobody asks for the next one), or waiting for its own I/O or pool jobs:
/// asked - starved - busy. Stages that work ahead are busy and starved also while they are not asked.
///
/// Where several generators are one stage, as the pipelines that interleave() has open, it is asked while any of them
/// is, starved while any of them is, and blocked while none is asked: no time is counted twice.
class stage_record {
 public:
  using counter = std::atomic<std::int64_t>;

  stage_record(const char* stage_name, const char* what_helps, const stage_record* consumer,
               stage_recorder* recorder) noexcept
      : name(stage_name), advice(what_helps), parent(consumer), owner(recorder) {}

  /// The name of a stage that is to be called by its place in the table.
  static constexpr const char* numbered = "";

  const char* const name;
  const char* const advice;          ///< what helps when it waits for its own I/O; null: not known
  const stage_record* const parent;  ///< the stage that consumes this one; null for the sink
  stage_recorder* const owner;
  counter items{0};       ///< handed to the next stage
  counter failed{0};      ///< left out by the stage's failure_policy
  counter bytes{0};       ///< of those items, where their type has byte_size()
  counter read{0};        ///< bytes that it has read from a store, for fetch()
  counter busy_ns{0};     ///< on the loop thread
  counter pool_ns{0};     ///< on the compute pool, summed over its threads
  counter starved_ns{0};  ///< waiting for the stage before it
  counter asked_ns{0};    ///< from being asked to handing over
  counter blocked_ns{0};  ///< from handing over to being asked again
  /// Of the sink: since when the pipeline's consumer has been waiting for an item; `never` while it does not wait, 0
  /// where it does not tell (a coroutine of the loop). Written by the thread that waits.
  counter waits_since_ns{0};
  static constexpr std::int64_t never = INT64_MAX;

  /// Adds without a locked instruction: only for counters that one thread writes.
  static void add(counter& c, std::int64_t n) noexcept {
    c.store(c.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }

  // ---- what its generators tell, at time t

  /// One of them was asked, and had or had not handed over an item before.
  void asked(std::int64_t t, bool after_item) noexcept {
    if (asked_ == 0) {
      if (handed_ > 0) add(blocked_ns, t - since_);
      since_ = t;
    }
    ++asked_;
    if (after_item) --handed_;
  }
  /// It gave an item of so many bytes; less than 0: an end or an error.
  void answered(std::int64_t t, std::int64_t item_bytes) noexcept {
    if (item_bytes >= 0) {
      counted(item_bytes);
      ++handed_;
    }
    asked_no_more(t);
  }
  /// It was asked and gave an item of so many bytes between two moments that are one by the clock: no time changes, and
  /// neither does what it has handed over.
  void counted(std::int64_t item_bytes) noexcept {
    add(items, 1);
    if (item_bytes != 0) add(bytes, item_bytes);
  }
  /// It is destroyed, while it was asked or after it had handed over an item.
  void dropped(std::int64_t t, bool while_asked, bool after_item) noexcept {
    if (after_item) --handed_;
    if (while_asked) asked_no_more(t);
  }
  /// The stage waits for one before it, and not any more.
  void wait_began(std::int64_t t) noexcept {
    if (waits_++ == 0) starved_since_ = t;
  }
  void wait_ended(std::int64_t t) noexcept {
    if (--waits_ == 0) add(starved_ns, t - starved_since_);
  }

  // ---- what has been since start-up was over

  /// Nanoseconds since mark(), or in all where it was not called.
  class times {
   public:
    std::int64_t busy = 0, pool = 0, starved = 0, asked = 0, blocked = 0;
  };
  times since_mark() const noexcept;
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
  int handed_ = 0;          // generators that have handed over an item and were not asked since
  int waits_ = 0;           // questions of this stage that are not answered
  std::int64_t since_ = 0;  // when asked_ became more than 0, or 0 again
  std::int64_t starved_since_ = 0;
  counter marked_busy_{0}, marked_pool_{0}, marked_starved_{0}, marked_asked_{0}, marked_blocked_{0};
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
  /// What was made before the recorder is a place in the pipeline: it gets a record of its own, whatever others of its
  /// name there are. What was made later is made by a stage that runs, over and over (an untar() for each shard): all
  /// of one name are one place.
  stage_record* place(const char* name, const char* advice, const stage_record* parent, std::int64_t made);
  /// The record of all those that are called so; made on first use.
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
  /// Of the pipeline's stages; for its executor's thread.
  const std::shared_ptr<detail::orphan_count>& orphans() const noexcept { return orphans_; }
  /// The memory budget of the run; null where there is none to ask: see run_budget::of().
  run_budget* budget() const noexcept { return budget_; }
  /// Before the first stage starts.
  void set_budget(run_budget* budget) noexcept { budget_ = budget; }
  /// Start-up is over: see stage_record::since_mark().
  void mark() noexcept {
    std::lock_guard lock(mutex_);
    for (link* l = first_.get(); l != nullptr; l = l->next.get()) l->record.mark();
  }

 private:
  /// A thousand sources of one merge() are one line, but for the first of them.
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
  run_budget* budget_ = nullptr;
  const std::shared_ptr<detail::orphan_count> orphans_ = std::make_shared<detail::orphan_count>();
  mutable std::mutex mutex_;
  std::unique_ptr<link> first_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/coro/impl/stage_record.ipp>
#endif
