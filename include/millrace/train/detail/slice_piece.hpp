// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/shards/range_scheduler.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// How many samples of a slice a rank reads at once, with so many bytes of memory and a mean sample of `mean`: as many
/// that a piece of each of its tracks takes half of the bytes. The other half is for reading ahead.
inline std::uint64_t samples_of_piece(std::uint64_t bytes, std::uint64_t tracks, std::uint64_t world,
                                      std::uint64_t mean, std::uint64_t slice) noexcept {
  return std::clamp<std::uint64_t>(bytes / 2 / (tracks / world + 1) / mean, 1, slice);
}

/// The positions, from where a training starts, whose samples are read apart from their slices, so that the first batch
/// does not wait for these.
inline std::uint64_t first_positions(std::uint64_t step, std::uint64_t tracks) noexcept {
  return std::clamp(step, tracks, 16 * tracks);
}

/// The memory that a slice of `slice` samples takes, by the mean sample. The frames of compressed text count, too, as
/// if they were as long.
inline std::uint64_t slab_of_slice(const index_set& indexes, std::uint64_t slice) noexcept {
  const std::uint64_t mean = indexes.sample_bytes() / std::max<std::uint64_t>(indexes.samples(), 1) + 1;
  const auto bytes = static_cast<std::size_t>(mean * std::min(slice, indexes.samples()));
  const bool packed = std::any_of(indexes.begin(), indexes.end(), [](const shard_index& i) { return i.is_packed(); });
  return (packed ? 2 : 1) * range_reader::slab_for(bytes);
}

/// Samples of one shard that follow each other.
struct slice_stretch {
  std::size_t shard = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

/// The rows of a slice whose index is in a store (shard_index::read_rows()).
class slice_rows {
 public:
  void add(std::size_t shard, shard_index::rows block) { blocks_.emplace_back(shard, std::move(block)); }
  /// Those that a sample of the slice is among.
  const shard_index::rows& of(std::uint64_t shard, std::size_t sample) const {
    for (const auto& [its, block] : blocks_) {
      if (its == shard && block.has(sample)) return block;
    }
    misused("slice_rows: rows that were not read");
  }

 private:
  std::vector<std::pair<std::size_t, shard_index::rows>> blocks_;
};

/// Samples of a track that follow each other and lie in one slice, and the requests that read them.
class slice_piece {
 public:
  class wanted {
   public:
    sample_place place;
    std::size_t range = 0;   // the first of its ranges
    std::size_t ranges = 1;  // of objects: one each
    std::size_t rows = 0;    // which of the piece's have it
  };
  class range;
  /// Samples that are unpacked together.
  class group {
   public:
    group() = default;
    std::shared_ptr<const shard_reader> reader;  // null where nothing is read, as in estimates
    std::uint64_t shard = 0;
    std::size_t number = 0;   // in its shard
    std::uint64_t begin = 0;  // bytes of the text
    std::uint64_t end = 0;
    std::size_t first = 0;  // of its ranges, in the piece
    std::size_t ranges = 1;
    range* read = nullptr;    // the first of them
    std::size_t missing = 1;  // of them
    unpacked_group data;      // when all have come
  };
  class range : public wanted_range {
   public:
    explicit range(std::uint64_t s) noexcept : shard(s) {}
    /// It has been read, or has failed. Ranges of a group are done together.
    void came() noexcept {
      if (of == nullptr) {
        done = true;
      } else if (--of->missing == 0) {
        for (std::size_t i = 0; i < of->ranges; ++i) of->read[i].done = true;
      }
    }
    std::uint64_t shard;
    // The object that is field `field` of sample `ordinal`, from its beginning to its end:
    std::uint64_t ordinal = 0;
    std::size_t field = 0;
    bool cut = false;                 // more of the piece would have been in it if it could be longer
    group* of = nullptr;              // bytes of the object then
    std::vector<std::uint64_t> rows;  // of arrays: the first row and the one after the last, of each stretch
    bytes data;                       // when done
  };

  /// Samples [first, first + count) of a track, in ranges of `part` bytes at most where a sample is not longer.
  /// `readers`: of a shard_format. Without them, for an estimate, groups are read as the index says. `held`: the rows,
  /// where the index is in a store.
  slice_piece(const index_set& indexes, const sample_order& order, std::uint64_t track, std::uint64_t first,
              std::uint64_t count, std::size_t part, std::size_t gap, shard_readers* readers = nullptr,
              const slice_rows* held = nullptr)
      : first_(first) {
    track_cursor cursor(order, track, first);
    std::vector<std::size_t> by_place;
    for (std::uint64_t i = 0; i < count; ++i) {
      wanted w;
      w.place = cursor.next();
      samples_.push_back(w);
      by_place.push_back(by_place.size());
    }
    std::sort(by_place.begin(), by_place.end(), [&](std::size_t a, std::size_t b) {
      const sample_place& x = samples_[a].place;
      const sample_place& y = samples_[b].place;
      return x.shard != y.shard ? x.shard < y.shard : x.ordinal < y.ordinal;
    });
    std::uint64_t used = 0;  // bytes of samples in the last range
    std::uint64_t rows_shard = UINT64_MAX;
    for (const std::size_t i : by_place) {
      const sample_place& place = samples_[i].place;
      const shard_index& index = indexes[static_cast<std::size_t>(place.shard)];
      if (index.row_arrays() != nullptr) {  // one, of all rows; its length is that of them together
        if (ranges_.empty()) ranges_.emplace_back(place.shard);
        std::vector<std::uint64_t>& rows = ranges_.back().rows;
        if (!rows.empty() && place.ordinal < rows.back()) continue;  // a copy of the sample before
        if (rows.empty() || place.ordinal != rows.back()) rows.insert(rows.end(), {place.ordinal, place.ordinal});
        ++rows.back();
        ranges_.back().end += index.end(static_cast<std::size_t>(place.ordinal)) -
                              index.offset(static_cast<std::size_t>(place.ordinal));
        continue;
      }
      if (index.of_objects()) {
        samples_[i].range = ranges_.size();
        samples_[i].ranges = index.field_count(static_cast<std::size_t>(place.ordinal));
        for (std::size_t k = 0; k < samples_[i].ranges; ++k) {
          ranges_.emplace_back(place.shard);
          ranges_.back().ordinal = place.ordinal;
          ranges_.back().field = k;
          ranges_.back().end = index.field_at(static_cast<std::size_t>(place.ordinal), k).size;
        }
        continue;
      }
      const auto number = static_cast<std::size_t>(place.ordinal);
      if (place.shard != rows_shard || !rows_.back().has(number)) {
        // Of a slice there are two blocks or three. Samples that were chosen here and there have one each.
        shard_index::rows its = held != nullptr ? held->of(place.shard, number) : index.rows_of(number);
        rows_.push_back(rows_.size() < 4 ? std::move(its) : its.only(number));
        rows_shard = place.shard;
      }
      samples_[i].rows = rows_.size() - 1;
      const std::uint64_t begin = rows_.back().offset(number);
      const std::uint64_t end = rows_.back().end(number);
      if (index.has_groups()) {
        add_to_group(samples_[i], index, begin, readers);
        continue;
      }
      if (!ranges_.empty() && ranges_.back().shard == place.shard && begin < ranges_.back().end) {
        samples_[i].range = ranges_.size() - 1;  // a copy of the sample before
        continue;
      }
      const bool near = !ranges_.empty() && ranges_.back().shard == place.shard && begin - ranges_.back().end <= gap &&
                        end - ranges_.back().begin <= 2 * (used + (end - begin)) + gap;
      const bool joins = near && end - ranges_.back().begin <= part;
      if (!joins) {
        if (near) ranges_.back().cut = true;
        ranges_.emplace_back(place.shard);
        ranges_.back().begin = begin;
        used = 0;
      }
      used += end - begin;
      ranges_.back().end = end;
      samples_[i].range = ranges_.size() - 1;
    }
    for (group& g : groups_) {
      g.read = &ranges_[g.first];
      for (std::size_t k = 0; k < g.ranges; ++k) ranges_[g.first + k].of = &g;
      reserved_ += static_cast<std::size_t>(g.end - g.begin);
    }
    for (range& r : ranges_) {
      r.done = r.length() == 0;  // empty lines, or an empty object: nothing is asked for
      const std::size_t slab = range_reader::slab_for(r.length());
      // Small pieces get memory of their own size; the others hold a whole slab, whatever they fill of it.
      reserved_ += r.length() <= slab / 8 || !r.rows.empty() ? r.length() : slab;
      const shard_index& index = indexes[static_cast<std::size_t>(r.shard)];
      if (index.is_packed() && r.of == nullptr && !r.done)
        reserved_ += range_reader::slab_for(index.frames_of(r.begin, r.end).length());
    }
  }
  slice_piece(const slice_piece&) = delete;
  slice_piece& operator=(const slice_piece&) = delete;
  ~slice_piece() {
    if (held_ != nullptr) *held_ -= reserved_;
  }

  /// Makes it a piece of a mix, where this is another track: its first sample has another number there, the shards of
  /// other data sets are counted before its own, and it is read in an epoch of its own.
  void place(std::uint64_t first, std::uint64_t shards_before, std::uint64_t epoch) noexcept {
    first_ = first;
    epoch_ = epoch;
    for (wanted& w : samples_) w.place.shard += shards_before;
    for (range& r : ranges_) r.shard += shards_before;
    for (group& g : groups_) g.shard += shards_before;
  }
  std::uint64_t epoch() const noexcept { return epoch_; }

  /// Counts its bytes in `held` until it goes.
  void hold(std::size_t& held) noexcept {
    held_ = &held;
    held += reserved_;
  }

  bool has(std::uint64_t number) const noexcept { return number >= first_ && number - first_ < samples_.size(); }
  bool ends_with(std::uint64_t number) const noexcept { return number - first_ + 1 == samples_.size(); }
  /// Sample `number` of the track.
  const wanted& at(std::uint64_t number) const noexcept { return samples_[static_cast<std::size_t>(number - first_)]; }
  std::size_t samples() const noexcept { return samples_.size(); }
  std::uint64_t last() const noexcept { return first_ + samples_.size() - 1; }
  /// The index's rows of a sample, unless that is of objects. The piece keeps them, wherever the index has them.
  const shard_index::rows& rows_of(const wanted& w) const noexcept { return rows_[w.rows]; }
  std::vector<range>& ranges() noexcept { return ranges_; }
  const std::vector<group>& groups() const noexcept { return groups_; }
  std::size_t reserved() const noexcept { return reserved_; }

 private:
  /// Samples come in the order of their places.
  void add_to_group(wanted& w, const shard_index& index, std::uint64_t offset, shard_readers* readers) {
    const std::size_t number = index.group_of(offset);
    if (groups_.empty() || groups_.back().shard != w.place.shard || groups_.back().number != number) {
      group g;
      g.shard = w.place.shard;
      g.number = number;
      g.begin = index.group(number).text;
      g.end = index.group_text_end(number);
      g.first = ranges_.size();
      if (readers != nullptr) g.reader = readers->of(index, g.shard);
      std::vector<object_range> its;
      if (g.reader != nullptr) {
        its = g.reader->ranges(index, number);
      } else {
        its.emplace_back(index.group(number).begin, index.group(number).end);
      }
      for (const object_range& r : its) {
        if (r.end <= r.begin) misused("shard_reader: ranges() has one that is empty");
        ranges_.emplace_back(g.shard);
        ranges_.back().begin = r.begin;
        ranges_.back().end = r.end;
      }
      g.ranges = g.missing = its.size();
      if (its.empty()) misused("shard_reader: ranges() has none");
      groups_.push_back(std::move(g));
    }
    w.range = groups_.back().first;
    w.ranges = groups_.back().ranges;
  }

  std::uint64_t first_;
  std::uint64_t epoch_ = 0;
  std::vector<wanted> samples_;  // in the track's order
  std::vector<shard_index::rows> rows_;
  std::vector<range> ranges_;    // never grows again: coroutines refer to them
  std::vector<group> groups_;    // and to these
  std::size_t reserved_ = 0;
  std::size_t* held_ = nullptr;
};

/// How many samples of a track, from number `first` on, lie in one slice side by side.
inline std::uint64_t left_of_slice(const sample_order& order, std::uint64_t track, std::uint64_t first) noexcept {
  const sample_order::stretch on_tape = order.track(track);
  const std::uint64_t at = (order.rotation(track) + first) % on_tape.length;
  const sample_order::placed_slice slice = order.slice_at(on_tape.begin + at);
  const std::uint64_t of_slice = slice.on_tape + slice.samples.length - (on_tape.begin + at);
  return std::min({of_slice, on_tape.length - at, on_tape.length - first});
}

/// Calls `f` with each slice_stretch of the slice of a track that has its sample number `first`, of an order of all
/// samples.
template <class F>
void each_stretch(const sample_order& order, std::uint64_t track, std::uint64_t first, const F& f) {
  const sample_order::stretch on_tape = order.track(track);
  const std::uint64_t at = (order.rotation(track) + first) % on_tape.length;
  sample_order::stretch slice = order.slice_at(on_tape.begin + at).samples;
  while (slice.length > 0) {
    if (slice.begin >= order.size()) slice.begin -= order.size();
    const sample_place p = order.counts().find(slice.begin);
    const std::uint64_t there = order.counts().count(static_cast<std::size_t>(p.shard)) - p.ordinal;
    const std::uint64_t count = std::min(slice.length, there);
    slice_stretch its;
    its.shard = static_cast<std::size_t>(p.shard);
    its.first = static_cast<std::size_t>(p.ordinal);
    its.count = static_cast<std::size_t>(count);
    f(its);
    slice.begin += count;
    slice.length -= count;
  }
}

/// Lets the system read the rows of the index, where they lie in a file, for the slice of a track that has its sample
/// number `first`: so that a piece that is made of them later does not wait for a disk.
inline void will_need(const index_set& indexes, const sample_order& order, std::uint64_t track, std::uint64_t first) {
  const sample_order::stretch on_tape = order.track(track);
  if (first >= on_tape.length) return;
  if (indexes.selection() != nullptr) {
    track_cursor cursor(order, track, first);
    for (std::uint64_t left = left_of_slice(order, track, first); left > 0; --left) {
      const sample_place p = cursor.next();
      indexes[static_cast<std::size_t>(p.shard)].will_need(static_cast<std::size_t>(p.ordinal), 1);
    }
    return;
  }
  each_stretch(order, track, first, [&](const slice_stretch& s) { indexes[s.shard].will_need(s.first, s.count); });
}

}  // namespace millrace::detail
