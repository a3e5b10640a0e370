// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// How long parts take, by size: when one is late, and how many may be requested again. Thread-safe.
///
/// A part is late when it takes longer than all but a few of its size: half as many as may be requested again, since
/// late ones come together. And it takes twice as long as is usual: else the first answer would come before a second
/// one. Both times follow what is seen: a longer time raises them, a shorter one lowers them, in the ratio that keeps
/// so many above.
class part_times {
 public:
  static constexpr std::size_t least = 20;  ///< with fewer of a size nothing is late
  static constexpr double saved = 4;        ///< requests for late parts that are saved up, or owed, at most
  /// Nothing is late before this: what is read ahead covers it.
  static constexpr duration soonest = duration(20'000'000);
  static constexpr duration unknown = duration(100'000'000);

  /// `extra`: requests for late parts, for each request; from 0 to 1, else a configuration_error.
  explicit part_times(double extra);

  bool off() const noexcept { return extra_ <= 0; }
  /// After which time a part is late; 0 while that is not known: look again after `unknown`.
  duration patience(std::size_t length);
  /// The right to request one that is late again, `waited` times its patience after the first request. One that is very
  /// late may take what later requests will allow, as while a reader waits for it there are none; not after a refusal.
  bool take(std::size_t waited);
  /// A part of `length` bytes has come. `held`: as storage::part::held; then no more are requested again for now.
  void came(std::size_t length, duration took, duration held);

 private:
  struct times {
    double usual = 0;  // half of them take longer, in ns
    double late = 2;   // few take so many times as long as that; at least 2
    std::size_t count = 0;
  };
  /// Of parts of similar size: within a factor of two. Of the shortest ones the first byte is nearly all.
  times& of(std::size_t length) noexcept { return by_size_[std::bit_width(length >> 17)]; }

  const double extra_;
  std::mutex mutex_;
  times by_size_[48];
  double allowed_ = 1;
  bool refused_ = false;  // since then one has not been allowed: none is taken in advance
};

/// Reads parts of a store, and requests those that are late again: the first answer counts, the others are dropped. A
/// part fails when all of its requests have.
class hedged_reader {
 public:
  hedged_reader(const hedged_reader&) = delete;
  hedged_reader& operator=(const hedged_reader&) = delete;

 protected:
  explicit hedged_reader(double extra) : times_(extra) {}
  ~hedged_reader() = default;

  /// storage::read(), or storage::read_small(). Must outlive the task.
  MILLRACE_COROUTINE task<storage::part> read_hedged(bool small, shard object, std::string etag, std::uint64_t offset,
                                                     std::size_t length, slab_pool slabs) const;

 private:
  class race;
  /// One request.
  virtual task<storage::part> ask(bool small, shard object, std::string etag, std::uint64_t offset, std::size_t length,
                                  slab_pool slabs) const = 0;

  mutable part_times times_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/detail/hedged_reader.ipp>
#endif
