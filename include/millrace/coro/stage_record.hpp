// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include <millrace/base/owned.hpp>

namespace millrace {

class stage_recorder;

/// What one stage of a running pipeline has done. Written by the loop thread only, readable from any thread at any
/// moment (the set is no snapshot). Counts are exact. Times are nanoseconds of the executor's account_clock: exact on
/// virtual time and where turns are long; right to about 1% of the run, after some seconds, where they are short.
///
/// A stage is in one of these states: *busy* (its code runs on the loop), *starved* (it asked the stage before it and
/// waits), *blocked* (it has handed over an item and nobody asks for the next one), or waiting for its own I/O or pool
/// jobs: asked - starved - busy. Stages that work ahead are busy also while they are not asked.
class stage_record {
 public:
  using counter = std::atomic<std::int64_t>;

  stage_record(const char* stage_name, const stage_record* consumer, stage_recorder* recorder) noexcept
      : name(stage_name), parent(consumer), owner(recorder) {}

  const char* const name;
  const stage_record* const parent;  ///< the stage that consumes this one; null for the sink
  stage_recorder* const owner;
  counter items{0};       ///< handed to the next stage
  counter failed{0};      ///< left out by the stage's failure_policy
  counter bytes{0};       ///< of those items, where their type has byte_size()
  counter busy_ns{0};     ///< on the loop thread
  counter pool_ns{0};     ///< on the compute pool, summed over its threads
  counter starved_ns{0};  ///< waiting for the stage before it
  counter asked_ns{0};    ///< from being asked to handing over
  counter blocked_ns{0};  ///< from handing over to being asked again

  /// Adds without a locked instruction: only for counters that one thread writes.
  static void add(counter& c, std::int64_t n) noexcept {
    c.store(c.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
};

/// The records of one pipeline, in the order in which stages started (sink first). Records live as long as the
/// recorder.
class stage_recorder {
 public:
  stage_recorder() = default;
  stage_recorder(const stage_recorder&) = delete;
  stage_recorder& operator=(const stage_recorder&) = delete;

  /// The record of stage `name` consumed by `parent`; made on first use. `name` must outlive the recorder.
  stage_record* find_or_add(const char* name, const stage_record* parent) {
    std::lock_guard lock(mutex_);
    owned<link>* place = &first_;
    for (; *place != nullptr; place = &(*place)->next) {
      stage_record& r = (*place)->record;
      if (r.parent == parent && std::strcmp(r.name, name) == 0) return &r;
    }
    *place = make_owned<link>(name, parent, this);
    return &(*place)->record;
  }

  /// Calls `visit(record)` for each record, sink first.
  template <class Visit>
  void for_each(Visit&& visit) const {
    std::lock_guard lock(mutex_);
    for (const link* l = first_.get(); l != nullptr; l = l->next.get()) visit(l->record);
  }

 private:
  struct link {
    link(const char* name, const stage_record* parent, stage_recorder* home) : record(name, parent, home) {}
    stage_record record;
    owned<link> next;
  };

  mutable std::mutex mutex_;
  owned<link> first_;
};

}  // namespace millrace
