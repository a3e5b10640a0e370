// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <millrace/data/hash128.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/train/detail/training_plan.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The facts that fix the order of a training without an index, beside the contents of its shards: its training_plan,
/// with the list.
class window_plan {
 public:
  window_plan() = default;
  /// configuration_error for a list without shards, or with fewer than ranks.
  window_plan(std::vector<shard> list, const training_plan& asked);

  std::vector<shard> shards;  ///< in the order of what their URLs show, which is without secrets
  hash128 list;               ///< of these, their sizes and their ETags as far as the list says them
  std::uint64_t seed = 0;
  std::uint64_t end_epoch = 0;  ///< after the last one
  millrace::rank rank;
  std::size_t width = 1;  ///< shards that are read in turn
  std::size_t window = 1;
  std::uint64_t window_bytes = 0;
  std::uint64_t take = 0;  ///< samples of an epoch, of this rank; 0: all
};

/// The order of samples without an index, as a state machine without I/O: it says what to do next, gets the results,
/// and has a position at any time.
///
/// The rule. An epoch's shards of this rank (shard_deal) are opened in their order, `width` of them at once, and read
/// in turn, a sample each. A shard that has ended when its turn comes is replaced by the next one, which gets the turn;
/// if there is none, the turn passes to the shard after it. A sample that is read goes into the last slot of the
/// window. Before the first sample leaves, a tenth of the window is filled, in samples or bytes (whichever comes
/// first); before each other one at most two samples are read, while the window has room: fewer than `window` samples,
/// and of fewer than `window_bytes` bytes. Two samples may always be there, so that the last one is known to be that.
/// The sample that leaves is drawn from the first `window` slots, by random numbers of its place in the epoch alone;
/// the last slot moves to its place. A sample's bytes are those of its members in the archive, headers and padding
/// included.
class window_order {
 public:
  class place {
   public:
    std::uint64_t number = 0;   ///< of the rank's shards of the epoch
    std::uint64_t offset = 0;   ///< of what comes next in it
    std::uint64_t ordinal = 0;  ///< the same, in samples
    friend bool operator==(const place&, const place&) = default;
  };
  /// A sample of the window.
  class spot {
   public:
    std::uint64_t shard = 0;  ///< of the plan
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t ordinal = 0;
    friend bool operator==(const spot&, const spot&) = default;
  };
  /// An event, in 16 bytes: a sample has been taken, or one of the others.
  class event {
   public:
    static constexpr event taken(std::uint64_t from, std::uint64_t to) noexcept { return {from, to}; }
    static constexpr event shard_ended() noexcept { return {0, 0}; }
    static constexpr event drawn() noexcept { return {1, 0}; }
    static constexpr event next_epoch() noexcept { return {2, 0}; }
    std::uint64_t begin;
    std::uint64_t end;
  };

  /// At the beginning of an epoch.
  window_order(std::shared_ptr<const window_plan> plan, std::uint64_t epoch);
  /// Moves to the position of a state. False if that cannot be.
  bool move_to(std::uint64_t count, std::uint64_t next_number, std::size_t turn, std::vector<place> places,
               std::vector<spot> held);

  const window_plan& plan() const noexcept { return *plan_; }
  std::uint64_t epoch() const noexcept { return epoch_; }
  /// Samples of the epoch that have left.
  std::uint64_t count() const noexcept { return count_; }
  const std::vector<place>& places() const noexcept { return places_; }
  std::size_t turn() const noexcept { return turn_; }
  std::uint64_t next_number() const noexcept { return next_; }
  const std::vector<spot>& held() const noexcept { return held_; }

  /// The rank's shards of the epoch.
  const std::vector<std::size_t>& numbers() const noexcept { return numbers_; }
  std::size_t shard_of(const place& p) const noexcept { return numbers_[static_cast<std::size_t>(p.number)]; }

  /// No sample is left.
  bool over() const noexcept {
    return (places_.empty() && held_.empty()) || (plan_->take != 0 && count_ >= plan_->take);
  }
  /// True if a sample of asked() must be read before the next one leaves.
  bool pulls() const noexcept;
  const place& asked() const noexcept { return places_[turn_]; }

  /// The sample at [begin, end) of asked() is in the window's last slot.
  void take(std::uint64_t begin, std::uint64_t end);
  /// asked() has no more.
  void shard_ended();
  /// One leaves: the slot that it was in. The last slot has moved there.
  std::size_t draw();
  void next_epoch();
  void apply(const event& e);

 private:
  void begin(std::uint64_t epoch);

  std::shared_ptr<const window_plan> plan_;
  std::uint64_t epoch_ = 0;
  std::uint64_t count_ = 0;
  std::vector<std::size_t> numbers_;
  std::uint64_t next_ = 0;  // the first of them that is not open
  std::vector<place> places_;
  std::size_t turn_ = 0;
  std::vector<spot> held_;
  std::uint64_t held_bytes_ = 0;
  int pulled_ = 0;  // since the last one left
};

/// The slot that the sample leaves which is number `count` of the epoch, with so many in the window.
std::size_t drawn_slot(std::uint64_t seed, std::uint64_t epoch, std::uint64_t count, std::size_t slots) noexcept;

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/window_order.ipp>
#endif
