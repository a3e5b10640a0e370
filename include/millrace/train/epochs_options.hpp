// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/flow/failure_policy.hpp>

namespace millrace::inline MILLRACE_ABI {

class equal_batches;
class rank_group;

/// A rank_group in options, or none: `.ranks = mine`. The group must live until epochs() has returned, which copies it.
class rank_group_ref {
 public:
  constexpr rank_group_ref() noexcept = default;
  constexpr rank_group_ref(const rank_group& group) noexcept : group_(&group) {}
  template <class T = void>
  rank_group_ref(rank_group&&) noexcept {
    static_assert(detail::never_v<T>, "a temporary rank_group ends before the options: give the group a name");
  }
  constexpr const rank_group* get() const noexcept { return group_; }

 private:
  const rank_group* group_ = nullptr;
};

/// epochs_options::epochs of a training that ends by itself alone.
inline constexpr std::uint64_t endless = UINT64_MAX;

/// See epochs().
struct epochs_options {
  std::uint64_t seed = 0;
  std::uint64_t epochs = 1;       ///< how many, from first_epoch on, not 0; or `endless`
  std::uint64_t first_epoch = 0;  ///< its number
  /// Samples of one rank's batch; all ranks must give the same. 0, not said: steps of 1 (without an index: of
  /// .equal), and batch() needs a number.
  std::size_t batch = 0;
  /// How many batches of every epoch are taken; 0: all. The other samples of the epoch are not read; the next epoch has
  /// another order.
  std::uint64_t take_batches = 0;
  /// The ranks that train together, which compare seed, dataset, batch, order and state at the start (rank_group).
  rank_group_ref ranks = {};
  /// Without .ranks: which of how many, compared with none; the members of a group that see the same samples give the
  /// same.
  millrace::rank rank = {};
  /// Machines among which the samples are shared out for all epochs, so that a cache on a machine's disk has the
  /// samples that the machine reads again: see epochs(). 1: the ranks' samples are others in each epoch. hosts_of()
  /// says how many there are.
  std::uint64_t hosts = 1;
  /// The last batch of an epoch is padded with entries of weight 0. False: it is shorter; with several ranks it must
  /// be padded.
  bool pad = true;
  /// order_options::tracks. 0: default_tracks() of the index, the slice and the number of ranks (of a mix: 960), and
  /// after a resume those of the state, so that the order goes on; stream::plan() says how many.
  std::uint64_t tracks = 0;
  /// Gives several ranks equally many batches: without an index, and if flat_map() or pack() makes unequally many
  /// items; copied. Null: see .uneven.
  const equal_batches* equal = nullptr;
  /// With several ranks: each takes as many batches as its shards hold (without an index), or flat_map() and pack()
  /// make, and none waits for another.
  /// With .equal: its fill() is a stage of the pipeline, and not done by epochs().
  bool uneven = false;
  bool verify = true;  ///< compares every field with its CRC32C, where the index has one
  /// The treatment of samples that cannot be read: skip replaces them by entries of weight 0, and .limit and .rate
  /// count this rank's samples in this run. With several ranks, not on_failure::stop.
  failure_policy failures = {};

  // How it is read; nothing of this changes the order.
  std::size_t ahead = 4096;     ///< samples that are planned ahead of the consumer
  /// Upper bound for memory that is requested or holds samples that were not taken yet. 0: default_bytes(); without an
  /// index 160 MiB.
  std::size_t bytes = 0;
  // The number and the length of requests follow from measurements of the store, within these two.
  std::size_t requests = 64;   ///< under way at once, at most
  std::size_t part = 8 * MiB;  ///< bytes of one request, at most; a larger sample is one all the same
  std::size_t gap = 256 * KiB;  ///< unused bytes between two samples of one request; in all, so many more than used
};

namespace detail {
/// The number of the epoch after the last one.
constexpr std::uint64_t end_epoch_of(std::uint64_t first, std::uint64_t epochs) noexcept {
  return detail::added(first, epochs);
}
}  // namespace detail

}  // namespace millrace
