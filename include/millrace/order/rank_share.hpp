// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <millrace/base/units.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The positions [begin, begin + count) of an epoch's order that all ranks take together in one step of the training.
struct order_step {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
};

/// The step at position `begin` of an epoch of `samples`: `batch` of each of `world` ranks, or the rest.
inline order_step step_at(std::uint64_t samples, std::uint64_t begin, std::uint64_t batch,
                          std::uint64_t world) noexcept {
  const std::uint64_t left = begin < samples ? samples - begin : 0;
  const std::uint64_t whole = detail::multiplied(batch, world);
  return {begin, whole < left ? whole : left};
}

/// How many steps, so how many batches on every rank, an epoch has from position `begin` on. `batch` and `world` are
/// not 0.
inline std::uint64_t steps_from(std::uint64_t samples, std::uint64_t begin, std::uint64_t batch,
                                std::uint64_t world) noexcept {
  if (begin >= samples) return 0;
  const std::uint64_t whole = detail::multiplied(batch, world);
  return (samples - begin - 1) / whole + 1;
}

/// Which positions of a step one rank takes. A pure function of the number of tracks, the step, the rank and the world
/// size: ranks need not communicate, and of two worlds that take the same steps each takes every position once, from
/// any position on.
///
/// If the world size divides the tracks, rank r of W takes the positions g with g mod W = r: its tracks are its own.
/// Any other W, also above the number of tracks: the step's positions are sorted by (kappa(t), g), t the track of g and
/// kappa(t) its digits in the prime radices of the tracks, reversed; rank r takes the places [r n / W, (r+1) n / W) of
/// n. That keeps nearly the same tracks on a rank from step to step. It is computed in closed form, by counting and not
/// by sorting: O(log^2 tracks) and the answer.
///
/// With several hosts (order_options::hosts) the ranks of one are neighbours, those of the first host the first ones.
/// Host h takes the positions g with g mod hosts = h, so its tracks, and its ranks share these as all ranks do the
/// tracks if there are no hosts. So the hosts' shares of any full step are equal.
///
/// A full step gives every rank the same number. In the last one, a rank gets that number, one less, or none, and fills
/// its batch up with entries of weight 0 (weights()), so that all ranks have equally many batches of equal size.
///
/// Groups of ranks that must see the same samples (tensor, pipeline and sequence parallel) are one rank here: `world`
/// counts groups, and each member of a group gives the group's number.
class rank_share {
 public:
  /// configuration_error unless index < world, tracks is 1 to 2^24, and hosts divides both world and tracks.
  rank_share(std::uint64_t tracks, std::uint64_t index, std::uint64_t world, std::uint64_t hosts = 1);

  /// How many of the step's positions are this rank's.
  std::uint64_t size(order_step step) const noexcept;
  /// Replaces the contents of `out` by them: ascending, size() of them.
  void positions(order_step step, std::vector<std::uint64_t>& out) const;
  std::vector<std::uint64_t> positions(order_step step) const {
    std::vector<std::uint64_t> out;
    positions(step, out);
    return out;
  }
  /// Of a batch of `batch` entries: 1 for each of the step's samples, 0 for the padding after them.
  std::vector<float> weights(order_step step, std::size_t batch) const;

 private:
  __extension__ typedef unsigned __int128 wide;  // nvcc takes no `using` here
  static std::uint64_t part(std::uint64_t n, std::uint64_t index, std::uint64_t world) noexcept {
    return static_cast<std::uint64_t>(wide{n} * index / world);
  }
  /// The host's positions of a step, numbered among all of the host's.
  order_step of_host(order_step step) const noexcept {
    const auto before = [&](std::uint64_t g) { return g / hosts_ + (g % hosts_ > host_ ? 1 : 0); };
    const std::uint64_t begin = before(step.begin);
    return {begin, before(step.begin + step.count) - begin};
  }
  std::uint64_t size_of(order_step step) const noexcept;
  std::uint64_t below(std::uint64_t tracks, std::uint64_t kappa) const noexcept;
  std::uint64_t before(order_step step, std::uint64_t kappa) const noexcept;
  std::uint64_t track_of(std::uint64_t kappa) const noexcept;

  std::uint64_t hosts_;
  std::uint64_t host_ = 0;
  // Within the host.
  std::uint64_t tracks_;
  std::uint64_t index_;
  std::uint64_t world_;
  std::vector<std::uint64_t> radices_;  // the primes of tracks_, smallest first
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/rank_share.ipp>
#endif
