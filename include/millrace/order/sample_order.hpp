// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
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
/// at the same samples in all epochs, and laid in an order that the seed gives, of which each host has an equal length:
/// the samples divided by the hosts, to one sample. At the end of one host's length and the beginning of the next
/// one's, a slice may be shared by both; its samples have their homes as others do. A host's whole slices are put in
/// random order, anew in each epoch, on a tape of its own, with the parts of shared slices at its end; the hosts' tapes
/// stand one after the other. Track t is one of host t mod hosts, and so is position t. The order of the slices does
/// not depend on the number of hosts: if that changes by a factor, each host of fewer has the slices of neighbours
/// among more.
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
  /// A host's part of the tape and, by another number, of the slices in the order of their homes.
  struct home {
    stretch line;
    std::uint64_t first = 0;  // its first whole slice
    std::uint64_t full = 0;   // how many of them it has
    /// Samples of the shared slice before those.
    std::uint64_t before(std::uint64_t slice) const noexcept {
      const std::uint64_t end = line.begin + line.length;
      return (first * slice < end ? first * slice : end) - line.begin;
    }
  };
  /// The number on the tape of the group that has this place.
  std::size_t group_at(std::uint64_t place) const noexcept;
  home home_at(std::uint64_t host) const noexcept;
  std::uint64_t host_at(std::uint64_t place) const noexcept;
  /// The sample that slice number `s`, in the order of homes, begins with.
  std::uint64_t first_of(std::uint64_t s) const noexcept {
    return (s < full_slices_ ? (hosts_ == 1 ? s : homes_(s)) : s) * slice_;
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
  permutation tape_;   // of one host
  permutation homes_;  // of several: the slices in the order of their homes
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
  sample_place next();

 private:
  void enter(std::uint64_t place);

  const sample_order* order_;
  sample_order::stretch track_;
  std::uint64_t at_ = 0;  // in the track
  std::uint64_t left_;
  sample_order::placed_slice slice_;  // the one entered; of no length before the first
  std::uint64_t shard_ = UINT64_MAX;  // the shard of the sample before
  permutation inside_;
  selected_entries selected_;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline sample_order::sample_order(std::shared_ptr<const shard_counts> counts, std::uint64_t seed, std::uint64_t epoch,
                                  order_options options, std::shared_ptr<const sample_selection> selection)
    : counts_(std::move(counts)),
      selection_(std::move(selection)),
      samples_(selection_ == nullptr ? counts_->samples() : selection_->size()),
      tracks_(options.tracks),
      slice_(options.slice),
      hosts_(options.hosts),
      seed_(seed),
      epoch_(epoch) {
  constexpr std::uint64_t most = std::uint64_t{1} << 24;
  if (tracks_ == 0 || tracks_ > most) throw configuration_error("tracks must be 1 to 2^24");
  if (slice_ == 0 || slice_ > most) throw configuration_error("a slice must have 1 to 2^24 samples");
  if (hosts_ == 0 || hosts_ > most) throw configuration_error("hosts must be 1 to 2^24");
  if (tracks_ % hosts_ != 0) {
    throw configuration_error(std::to_string(hosts_) + " hosts do not divide " + std::to_string(tracks_) +
                              " tracks: each must have equally many");
  }
  full_slices_ = samples_ / slice_;
  quotient_ = samples_ / tracks_;
  remainder_ = samples_ % tracks_;
  phase_ = samples_ == 0 || hosts_ > 1 ? 0 : detail::key_of(seed, epoch, 1) % samples_;
  tape_key_ = detail::key_of(seed, epoch, 2);
  (hosts_ == 1 ? tape_ : homes_) = permutation(full_slices_, hosts_ == 1 ? tape_key_ : detail::key_of(seed, 0, 5));
  slice_key_ = detail::mix64(detail::key_of(seed, epoch, 3));
  if (!options.groups || selection_ != nullptr || counts_->groups().empty()) return;
  const std::vector<std::uint64_t>& groups = counts_->groups();
  if (hosts_ > 1) {
    throw configuration_error("samples that are read by groups have no homes on hosts: hosts must be 1");
  }
  tape_ = permutation(groups.size() - 1, tape_key_);
  phase_ = 0;
  std::vector<std::uint64_t> begins{0};
  begins.reserve(groups.size());
  for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
    const auto group = static_cast<std::size_t>(tape_(i));
    begins.push_back(begins.back() + groups[group + 1] - groups[group]);
  }
  tape_begins_ = std::make_shared<const std::vector<std::uint64_t>>(std::move(begins));
}

inline std::size_t sample_order::group_at(std::uint64_t place) const noexcept {
  return static_cast<std::size_t>(std::upper_bound(tape_begins_->begin(), tape_begins_->end(), place) -
                                  tape_begins_->begin() - 1);
}

inline sample_order::stretch sample_order::track(std::uint64_t track) const noexcept {
  const std::uint64_t host = home_of(track);
  const std::uint64_t number = track / hosts_;                                                     // among the host's
  const std::uint64_t longer = remainder_ > host ? (remainder_ - host + hosts_ - 1) / hosts_ : 0;  // of the host's
  const std::uint64_t before = host * (samples_ / hosts_) + std::min(host, samples_ % hosts_);
  return {before + number * quotient_ + std::min(number, longer), quotient_ + (track < remainder_ ? 1 : 0)};
}

inline std::uint64_t sample_order::host_at(std::uint64_t place) const noexcept {
  if (hosts_ == 1) return 0;
  const std::uint64_t each = samples_ / hosts_;
  const std::uint64_t longer = samples_ % hosts_;  // hosts, of one sample more
  if (place < longer * (each + 1)) return place / (each + 1);
  return longer + (place - longer * (each + 1)) / each;
}

inline sample_order::home sample_order::home_at(std::uint64_t host) const noexcept {
  const std::uint64_t each = samples_ / hosts_;
  const std::uint64_t longer = samples_ % hosts_;
  home h;
  h.line = {host * each + std::min(host, longer), each + (host < longer ? 1 : 0)};
  h.first = (h.line.begin + slice_ - 1) / slice_;
  const std::uint64_t end = std::min((h.line.begin + h.line.length) / slice_, full_slices_);
  h.full = end > h.first ? end - h.first : 0;
  return h;
}

inline std::uint64_t sample_order::rotation(std::uint64_t track) const noexcept {
  const stretch on_tape = this->track(track);
  if (on_tape.length == 0 || by_groups()) return 0;
  const std::uint64_t aim = ((track * 0x9e3779b97f4a7c15u >> 32) * slice_) >> 32;  // multiples of the golden ratio
  const std::uint64_t in_home = on_tape.begin - (hosts_ == 1 ? 0 : home_at(home_of(track)).line.begin);
  return (aim + slice_ - in_home % slice_) % slice_ % on_tape.length;
}

inline sample_order::placed_slice sample_order::slice_at(std::uint64_t place) const noexcept {
  if (by_groups()) {
    const std::size_t s = group_at(place);
    const std::uint64_t begin = (*tape_begins_)[s];
    return {s, begin, {counts_->groups()[static_cast<std::size_t>(tape_(s))], (*tape_begins_)[s + 1] - begin}};
  }
  if (hosts_ == 1) {
    const std::uint64_t s = place / slice_;
    const bool full = s < full_slices_;
    std::uint64_t begin = (full ? tape_(s) : full_slices_) * slice_ + phase_;
    if (begin >= samples_) begin -= samples_;
    return {s, s * slice_, {begin, full ? slice_ : samples_ - full_slices_ * slice_}};
  }
  const std::uint64_t host = host_at(place);
  const home h = home_at(host);
  const std::uint64_t at = (place - h.line.begin) / slice_;
  if (at < h.full) {
    const permutation tape(h.full, detail::mix64(detail::mix64(tape_key_) ^ host));
    const std::uint64_t s = h.first + tape(at);
    return {s, h.line.begin + at * slice_, {first_of(s), slice_}};
  }
  // Its part of the slice that begins in the host before, and then its part of the slice that begins here.
  const std::uint64_t before = h.before(slice_);
  const std::uint64_t parts = h.line.begin + h.full * slice_;
  if (place < parts + before) {
    const std::uint64_t s = h.line.begin / slice_;
    return {full_slices_ + 1 + s, parts, {first_of(s) + h.line.begin % slice_, before}};
  }
  const std::uint64_t s = h.first + h.full;
  return {s, parts + before, {first_of(s), h.line.begin + h.line.length - s * slice_}};
}

inline std::uint64_t sample_order::slices_of(std::uint64_t track) const noexcept {
  const stretch on_tape = this->track(track);
  if (on_tape.length == 0) return 0;
  if (by_groups()) return group_at(on_tape.begin + on_tape.length - 1) - group_at(on_tape.begin) + 1;
  const home h = home_at(home_of(track));
  const auto number_at = [&](std::uint64_t place) {  // on the host's tape
    const std::uint64_t at = place - h.line.begin;
    if (at < h.full * slice_) return at / slice_;
    const std::uint64_t before = h.before(slice_);
    return h.full + (before != 0 && at >= h.full * slice_ + before ? 1 : 0);
  };
  return number_at(on_tape.begin + on_tape.length - 1) - number_at(on_tape.begin) + 1;
}

inline sample_place sample_order::at(std::uint64_t position) const {
  if (MILLRACE_UNLIKELY(position >= samples_)) {
    detail::misused("a position of the order was asked for that the epoch does not have");
  }
  return track_cursor(*this, position % tracks_, position / tracks_).next();
}

inline track_cursor::track_cursor(const sample_order& order, std::uint64_t track, std::uint64_t taken)
    : order_(&order), track_(order.track(track)), left_(taken < track_.length ? track_.length - taken : 0) {
  if (track_.length != 0) at_ = (order.rotation(track) + taken) % track_.length;
  if (order.selection_ != nullptr) selected_ = selected_entries(*order.selection_, order.seed_, order.epoch_);
}

inline void track_cursor::enter(std::uint64_t place) {
  slice_ = order_->slice_at(place);
  inside_ = permutation(slice_.samples.length, detail::mix64(order_->slice_key_ ^ slice_.number));
  shard_ = UINT64_MAX;
}

inline sample_place track_cursor::next() {
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

}  // namespace millrace
