// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The end of an epoch of a mix of datasets. A dataset that has ended before begins anew, in another order: its next
/// round.
enum class mix_until : unsigned char {
  first_end,  ///< when a dataset would have to begin its second round: that one comes whole, the others in part
  last_end,   ///< after the last sample of the dataset whose first round takes longest: every sample is delivered
  forever,    ///< at a length that is given, whatever has ended before; without one, nowhere
};

/// The canonical order of several datasets with weights, which hold exactly over any `tracks` positions in a row: every
/// track belongs to one of them. At a position stands a position of a dataset's own order, in an epoch of its own. A
/// pure function of weights, tracks and sizes; the ranks share the positions by rank_share as they do those of one
/// dataset, and a track stays with its rank.
///
/// Every epoch has the same number of positions, and of samples of each dataset, whose rounds run on from one epoch to
/// the next: so every sample comes once in each of its dataset's rounds, however long the epochs are.
///
/// The weights become numbers of tracks by the largest remainder (ties: the first), at least one each, so they are
/// exact to 1 / tracks. The tracks are dealt so that each dataset is even in time and in every class of tracks modulo a
/// divisor of `tracks`, so among the ranks. Whole numbers throughout: every platform deals alike.
class sample_mix {
 public:
  /// `weights`: one for each dataset, in any unit, none 0, their sum below 2^40. `sizes`: the samples of each dataset,
  /// none 0. `length`: positions of an epoch that goes on `forever`; 0: it has no end. configuration_error otherwise,
  /// for more datasets than tracks, and for epochs of more than 2^60 positions.
  sample_mix(std::span<const std::uint64_t> weights, std::span<const std::uint64_t> sizes, std::uint64_t tracks,
             mix_until until = mix_until::first_end, std::uint64_t length = 0);

  std::size_t datasets() const noexcept { return sizes_.size(); }
  /// Tracks of one dataset: those of its own sample_order.
  std::uint64_t tracks(std::size_t dataset) const noexcept { return starts_[dataset + 1] - starts_[dataset]; }
  /// The dataset that track `t` belongs to; below the number of tracks.
  std::size_t owner(std::uint64_t t) const noexcept { return owners_[static_cast<std::size_t>(t)]; }
  /// Positions of an epoch; UINT64_MAX when it never ends.
  std::uint64_t size() const noexcept { return size_; }
  /// How many of them are one dataset's. Means nothing when it never ends.
  std::uint64_t samples(std::size_t dataset) const noexcept { return before(dataset, size_); }

  /// The sample at a position.
  struct place {
    std::size_t dataset = 0;
    std::uint64_t epoch = 0;     ///< its round: counted from 0 where the mix began
    std::uint64_t position = 0;  ///< in the dataset's order of that round

    friend bool operator==(const place&, const place&) = default;
  };
  /// In the mix's first epoch, or in a later one; a usage_error beyond size().
  place at(std::uint64_t position) const { return at(0, position); }
  place at(std::uint64_t epoch, std::uint64_t position) const;
  /// The position in the first epoch of sample number `n` (from 0, its rounds in a row) of a dataset: the inverse of
  /// at().
  std::uint64_t find(std::size_t dataset, std::uint64_t n) const noexcept;

 private:
  __extension__ typedef unsigned __int128 wide;  // nvcc takes no `using` here
  std::uint64_t before(std::size_t dataset, std::uint64_t position) const noexcept;
  static std::vector<std::uint64_t> quotas(std::span<const std::uint64_t> weights, std::uint64_t tracks);
  void deal(std::vector<std::uint64_t> quota, std::uint64_t tracks);

  std::vector<std::uint32_t> owners_;   // of each track
  std::vector<std::uint32_t> numbers_;  // of each track among its owner's
  std::vector<std::uint32_t> slots_;    // the tracks of each dataset, dataset by dataset
  std::vector<std::uint64_t> starts_;   // index in slots_ of the first track of each dataset
  std::vector<std::uint64_t> sizes_;
  std::uint64_t size_ = UINT64_MAX;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/sample_mix.ipp>
#endif
