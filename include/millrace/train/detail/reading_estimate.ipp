// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/train/detail/reading_estimate.hpp>
#include <millrace/train/detail/slice_piece.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE reading_estimate::reading_estimate(const index_set& indexes, const sample_order& order,
                                                   std::uint64_t world, std::size_t memory, std::size_t part,
                                                   std::size_t gap) {
  if (order.size() == 0 || indexes.rows_in_store()) return;  // nothing is read for an estimate
  const std::uint64_t mean = indexes.sample_bytes() / indexes.samples() + 1;
  piece = samples_of_piece(memory, order.tracks(), world, mean, order.slice());
  class counts {
   public:
    void add(const counts& more, double times) noexcept {
      samples += times * more.samples;
      asked += times * more.asked;
      read += times * more.read;
      used += times * more.used;
    }
    double samples = 0, asked = 0, read = 0, used = 0;
  };
  const auto counted = [&](std::uint64_t track, std::uint64_t at, std::uint64_t count) {
    slice_piece one(indexes, order, track, at, count, part, gap);
    counts here;
    here.samples = static_cast<double>(count);
    here.asked = static_cast<double>(one.ranges().size());
    for (const slice_piece::range& r : one.ranges()) here.read += r.of == nullptr ? static_cast<double>(r.length()) : 0;
    for (const slice_piece::group& g : one.groups()) here.read += static_cast<double>(g.end - g.begin);
    for (std::uint64_t k = at; k < at + count; ++k) {
      const sample_place& place = one.at(k).place;
      const auto number = static_cast<std::size_t>(place.ordinal);
      const shard_index& index = indexes[static_cast<std::size_t>(place.shard)];
      if (indexes.of_objects()) {
        here.used += static_cast<double>(index.end(number));
      } else if (index.row_arrays() != nullptr) {
        here.used += static_cast<double>(index.end(number) - index.offset(number));
      } else {
        here.used += static_cast<double>(one.rows_of(one.at(k)).end(number) - one.rows_of(one.at(k)).offset(number));
      }
    }
    return here;
  };
  // Both ends of a track, where slices are read in part, and some of what lies between them. Groups and other long
  // slices are counted at its beginning alone: one may have as many samples as a data set.
  constexpr std::uint64_t enough = 512;
  const bool long_slices = order.by_groups() || order.slice() > 8 * enough;
  const std::uint64_t looked_at = std::min<std::uint64_t>(order.tracks(), 16);
  counts all;
  for (std::uint64_t i = 0; i < looked_at; ++i) {
    const std::uint64_t track = i * order.tracks() / looked_at;
    const std::uint64_t length = order.track(track).length;
    counts between;
    for (std::uint64_t at = 0; at < length;) {
      const std::uint64_t count = std::min(piece, left_of_slice(order, track, at));
      const counts here = counted(track, at, count);
      all.add(here, 1);
      if (at >= order.slice()) between.add(here, 1);
      at += count;
      if (at < enough) continue;
      if (long_slices) break;
      if (between.samples == 0) continue;
      const std::uint64_t slices = at < length ? (length - at) / order.slice() : 0;
      if (slices <= 3) continue;
      const std::uint64_t skipped = (slices - 3) * order.slice();
      all.add(between, static_cast<double>(skipped) / between.samples);
      at += skipped;
    }
  }
  if (all.used == 0) return;
  requests = all.asked / all.samples;
  bytes = all.read / all.used;
}

}  // namespace millrace::detail
