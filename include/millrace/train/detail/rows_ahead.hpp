// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <millrace/coro/run_context.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/train/detail/slice_piece.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Reads the rows of an index that is in a store, slice by slice, before pieces are made of them: 16 slices at once, in
/// the order in which they are wanted. One that a piece waits for is read at once. It holds the rows of `most` slices,
/// and forgets those that were wanted first.
///
/// For one loop, which it is destroyed on; that ends what it reads. The indexes must outlive it. Members that name its
/// coroutine are templates: see MILLRACE_COROUTINE.
class rows_ahead {
 public:
  /// `arrived` is notified when rows have come, and outlives it.
  rows_ahead(const coroutine_context& here, notifier& arrived, std::size_t most)
      : here_(here), arrived_(arrived), most_(most) {}
  rows_ahead(const rows_ahead&) = delete;
  rows_ahead& operator=(const rows_ahead&) = delete;

  /// The rows of the slice of a track, in an epoch of data set `set`, that has its sample `number`; null as long as
  /// they have not come. Throws why they cannot be read. They live until let_go(), or until others are wanted.
  template <class = void>
  const slice_rows* find(std::size_t set, std::uint64_t epoch, const index_set& indexes, const sample_order& order,
                         std::uint64_t track, std::uint64_t number) {
    slice& its = wanted(set, epoch, indexes, order, track, number);
    if (!its.done) begin(its);
    if (its.error != nullptr) std::rethrow_exception(its.error);
    return its.done ? &its.rows : nullptr;
  }
  /// Reads them ahead.
  template <class = void>
  void want(std::size_t set, std::uint64_t epoch, const index_set& indexes, const sample_order& order,
            std::uint64_t track, std::uint64_t number) {
    if (number >= order.track(track).length) return;
    static_cast<void>(wanted(set, epoch, indexes, order, track, number));
    begin_next();
  }
  /// The rows of the slice that has this sample are not needed any more.
  void let_go(std::size_t set, std::uint64_t epoch, std::uint64_t track, std::uint64_t number) noexcept {
    std::erase_if(slices_, [&](const std::unique_ptr<slice>& s) { return s->has(set, epoch, track, number); });
  }

 private:
  static constexpr std::size_t at_once = 16;

  struct slice {
    bool has(std::size_t of_set, std::uint64_t of_epoch, std::uint64_t of_track, std::uint64_t number) const noexcept {
      return set == of_set && epoch == of_epoch && track == of_track && number - first < count;
    }
    std::size_t set = 0;
    std::uint64_t epoch = 0;
    std::uint64_t track = 0;
    std::uint64_t first = 0;  // of its samples in the track
    std::uint64_t count = 0;
    std::vector<slice_stretch> stretches;
    const index_set* indexes = nullptr;
    slice_rows rows;
    std::exception_ptr error;
    bool done = false;
    spawned<void> reading;  // declared last: its task refers to the others
  };

  slice& wanted(std::size_t set, std::uint64_t epoch, const index_set& indexes, const sample_order& order,
                std::uint64_t track, std::uint64_t number) {
    for (const std::unique_ptr<slice>& s : slices_) {
      if (s->has(set, epoch, track, number)) return *s;
    }
    if (slices_.size() >= most_) slices_.erase(slices_.begin());
    auto made = std::make_unique<slice>();
    made->set = set;
    made->epoch = epoch;
    made->track = track;
    made->first = number;
    made->count = left_of_slice(order, track, number);
    made->indexes = &indexes;
    each_stretch(order, track, number, [&](const slice_stretch& s) { made->stretches.push_back(s); });
    slices_.push_back(std::move(made));
    return *slices_.back();
  }
  template <class = void>
  void begin(slice& s) {
    if (!s.reading) s.reading = spawned<void>(here_, read(*this, s));
  }
  template <class = void>
  void begin_next() {
    std::size_t under_way = 0;
    for (const std::unique_ptr<slice>& s : slices_) under_way += s->reading && !s->done ? 1U : 0U;
    for (const std::unique_ptr<slice>& s : slices_) {
      if (under_way >= at_once) return;
      if (s->reading) continue;
      begin(*s);
      ++under_way;
    }
  }
  template <class = void>
  static task<void> read(rows_ahead& self, slice& s) {
    try {
      for (const slice_stretch& part : s.stretches) {
        const shard_index& index = (*s.indexes)[part.shard];
        std::vector<shard_index::rows> came = co_await index.read_rows(part.first, part.count);
        for (shard_index::rows& block : came) s.rows.add(part.shard, std::move(block));
      }
    } catch (...) {
      s.error = std::current_exception();  // which find() throws
    }
    s.done = true;
    self.arrived_.notify();
    self.begin_next();
  }

  const coroutine_context here_;
  notifier& arrived_;
  const std::size_t most_;
  std::vector<std::unique_ptr<slice>> slices_;
};

}  // namespace millrace::detail
