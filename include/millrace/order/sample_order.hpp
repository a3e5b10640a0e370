// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/order/permutation.hpp>
#include <millrace/order/sample_selection.hpp>
#include <millrace/order/shard_counts.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The numbers that fix the order of an epoch beside its seed, its number and the shards' counts. A state has them: the
/// order outlives a change of the number of ranks.
struct order_options {
  /// Into how many tracks the epoch is dealt; 1 to 2^24. Every rank reads tracks / world size slices at a time: more
  /// tracks shuffle better and hold more memory. Best not below the global batch, nor below 8 a rank. 960 is
  /// divided by 1-6, 8, 10, 12, 15, 16, 20, 24, 30, 32, 40, 48, 60, 64, 80, 96, 120, 160, 192, 240, 320 and 480.
  std::uint64_t tracks = 960;
  /// Samples that lie side by side and are read by one request; 1 to 2^24. Best a power of two. 1 is a full shuffle,
  /// and a request a sample. See slice_for().
  std::uint64_t slice = 32;
  /// Hosts of which each is the home of its own samples, the same ones in every epoch: 1 to 2^24, a divisor of the
  /// tracks. 1: there are no homes.
  std::uint64_t hosts = 1;
  /// Slices are the groups of shard_counts::groups(), of whatever length, if there are any; `slice` means nothing
  /// then.
  bool groups = false;
  /// Homes as states of versions before 4 have them: a host's are a stretch of the random order of slices, and one host
  /// more moves half of all.
  bool former_homes = false;
};

/// A good order_options::slice: the largest power of two with at most `most` bytes and 256 samples; at least 1.
inline std::uint64_t slice_for(std::uint64_t samples, std::uint64_t bytes, std::uint64_t most = 2 * MiB) noexcept {
  if (samples == 0 || bytes < samples) return 256;
  const std::uint64_t fit = most / (bytes / samples);
  return fit >= 256 ? 256 : fit == 0 ? 1 : std::bit_floor(fit);
}

/// The canonical order of the samples of an epoch: which sample stands at which position. A pure function of the seed,
/// the epoch, the shards' counts and two options; the same on every machine, whatever the number of ranks, and never
/// materialised. Its memory is that of the shard_counts, which copies share.
///
/// The shards, laid end to end, are cut into **slices** of neighbouring samples, and the slices are put in random order
/// on a **tape** (a short slice, if any, at its end). The cuts change with the epoch. The tape is cut into **tracks**
/// of equal length, to one sample; the order deals one sample of every track in turn: position g is sample g / tracks
/// of track g mod tracks. Within a slice the samples are permuted, and each track begins somewhere in its slice and
/// comes back to its beginning at the end, so that not all of them change slices at once.
///
/// If samples are read by groups (order_options::groups), the groups are the slices: cuts are the same in all epochs,
/// and tracks begin where they begin on the tape. The order of an epoch takes 8 bytes for each of them, too.
///
/// With a selection, its entries stand in the place of the shards' samples: a subset, or samples drawn by weights.
///
/// With several **hosts**, every slice has a home, so that a host reads the same samples in every epoch. Slices are cut
/// at the same samples in all epochs, and laid in a random order that the seed gives. Up to 2^16 of them are a
/// partition each; of more, a partition is as many neighbours of that order. All hosts have equally many partitions.
/// They are given out as if hosts were added one by one, each of which takes equally many from those before it: so of
/// the samples of H hosts about H / (H + 1) stay where they are as one more comes. The rest, less than a partition for
/// each host, is divided equally, to one sample. There a slice may be shared by two hosts; its samples have their homes
/// as others do. A host's whole slices are put in random order, anew in each epoch, on a tape of its own, with the
/// parts of shared slices at its end; the hosts' tapes stand one after the other. Track t is one of host t mod hosts,
/// and so is position t. The partitions take 4 bytes each.
///
/// So the position of a training in an epoch is one number, and a rank that owns some of the tracks (rank_share) reads
/// each of them slice by slice. The whole definition: docs/design/order.md.
class sample_order {
 public:
  /// configuration_error for options out of their range.
  sample_order(std::shared_ptr<const shard_counts> counts, std::uint64_t seed, std::uint64_t epoch,
               order_options options = {}, std::shared_ptr<const sample_selection> selection = nullptr);

  /// Samples of the epoch, and positions.
  std::uint64_t size() const noexcept { return samples_; }
  std::uint64_t tracks() const noexcept { return tracks_; }
  std::uint64_t slice() const noexcept { return slice_; }
  std::uint64_t hosts() const noexcept { return hosts_; }
  /// True if the slices are groups.
  bool by_groups() const noexcept { return tape_begins_ != nullptr; }
  const shard_counts& counts() const noexcept { return *counts_; }

  /// The sample at a position below size(); a usage_error otherwise. About 0.1 us; who goes along takes a
  /// track_cursor.
  sample_place at(std::uint64_t position) const;

  /// A stretch of the tape: samples [begin, begin + length).
  struct stretch {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;
  };
  /// A track on the tape; `track` must be below tracks().
  stretch track(std::uint64_t track) const noexcept;
  /// The offset in its stretch at which a track begins.
  std::uint64_t rotation(std::uint64_t track) const noexcept;
  /// A slice, or a part of one that stands on the tape by itself.
  struct placed_slice {
    std::uint64_t number = 0;   ///< tells it from the others
    std::uint64_t on_tape = 0;  ///< its place there
    /// Samples [begin, begin + length) of the shards laid end to end, and, if that reaches beyond size(), on from
    /// the first sample.
    stretch samples;
  };
  /// The one at a place of the tape below size(): [on_tape, on_tape + samples.length).
  placed_slice slice_at(std::uint64_t place) const noexcept;
  /// How many of them a track lies in.
  std::uint64_t slices_of(std::uint64_t track) const noexcept;
  /// A sample of the shards laid end to end where a slice begins; 0 if there are none. From it on slices are cut at
  /// equal distances, after the short one, if any, which begins here.
  std::uint64_t cut() const noexcept { return samples_ == 0 ? 0 : (full_slices_ * slice_ + phase_) % samples_; }
  /// The host whose home a track is of.
  std::uint64_t home_of(std::uint64_t track) const noexcept { return track % hosts_; }

 private:
  friend class track_cursor;
  /// The slices of a host. They are numbered in the order of homes: those of the first host's partitions, of the
  /// second one's, ..., and then those that are left.
  struct home {
    std::uint64_t host = 0;
    stretch line;              // its part of the tape
    std::uint64_t rest = 0;    // samples of the slices that are left, before its part of them
    std::uint64_t first = 0;   // the first one of these that is whole
    std::uint64_t full = 0;    // whole ones, with those of its partitions
    std::uint64_t before = 0;  // samples of the slice before `first`
  };
  /// The number on the tape of the group that has this place.
  std::size_t group_at(std::uint64_t place) const noexcept;
  home home_at(std::uint64_t host) const noexcept;
  placed_slice slice_at(std::uint64_t place, const home& h) const noexcept;
  std::uint64_t host_at(std::uint64_t place) const noexcept;
  /// The sample that slice number `s`, in the order of homes, begins with.
  std::uint64_t first_of(std::uint64_t s) const noexcept {
    if (s >= full_slices_) return s * slice_;
    if (partitions_ != nullptr && s / partition_ < partitions_->size()) {
      s = (*partitions_)[static_cast<std::size_t>(s / partition_)] * partition_ + s % partition_;
    }
    return homes_(s) * slice_;
  }

  std::shared_ptr<const shard_counts> counts_;
  std::shared_ptr<const sample_selection> selection_;  // null: all samples
  std::uint64_t samples_;
  std::uint64_t tracks_;
  std::uint64_t slice_;
  std::uint64_t full_slices_;
  std::uint64_t quotient_;   // samples of every track
  std::uint64_t remainder_;  // of the first so many tracks: one more
  std::uint64_t hosts_;
  std::uint64_t phase_;  // offset of the first cut
  std::uint64_t slice_key_;
  std::uint64_t tape_key_;
  permutation tape_;                                               // of one host
  permutation homes_;                                              // of several: a random order of the slices
  std::shared_ptr<const std::vector<std::uint32_t>> partitions_;   // of these, host by host; or null
  std::uint64_t partition_ = 0;                                    // slices of each
  std::uint64_t owned_ = 0;                                        // slices of a host's partitions
  std::shared_ptr<const std::vector<std::uint64_t>> tape_begins_;  // of groups, and where the last one ends; or null
  std::uint64_t seed_;
  std::uint64_t epoch_;
};

/// Goes along one track of an order, sample by sample: the fast way through it (a few tens of nanoseconds a sample).
/// The order must outlive it.
class track_cursor {
 public:
  /// Stands before sample `taken` of the track (from 0), which is position taken * tracks + track of the epoch.
  track_cursor(const sample_order& order, std::uint64_t track, std::uint64_t taken = 0);

  /// Samples that are left.
  std::uint64_t left() const noexcept { return left_; }
  /// The next sample; left() must not be 0.
  sample_place next() {
    const std::uint64_t p = track_.begin + at_;
    if (p - slice_.on_tape >= slice_.samples.length) enter(p);
    if (++at_ == track_.length) at_ = 0;
    --left_;
    std::uint64_t x = slice_.samples.begin + inside_(p - slice_.on_tape);
    if (x >= order_->samples_) x -= order_->samples_;
    std::uint32_t copy = 0;
    if (order_->selection_ != nullptr) {
      if (order_->selection_->copies()) copy = static_cast<std::uint32_t>(x);
      x = selected_(x);
    }
    const shard_counts& counts = *order_->counts_;
    const bool same = shard_ != UINT64_MAX && x >= counts.begin(static_cast<std::size_t>(shard_)) &&
                      x < counts.begin(static_cast<std::size_t>(shard_) + 1);
    if (same) return {shard_, x - counts.begin(static_cast<std::size_t>(shard_)), copy};
    sample_place place = counts.find(x);
    place.copy = copy;
    shard_ = place.shard;
    return place;
  }

 private:
  void enter(std::uint64_t place);

  const sample_order* order_;
  sample_order::stretch track_;
  std::uint64_t at_ = 0;  // in the track
  std::uint64_t left_;
  sample_order::home home_;           // with several hosts
  sample_order::placed_slice slice_;  // the one entered; of no length before the first
  std::uint64_t shard_ = UINT64_MAX;  // the shard of the sample before
  permutation inside_;
  selected_entries selected_;
};

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/sample_order.ipp>
#endif
