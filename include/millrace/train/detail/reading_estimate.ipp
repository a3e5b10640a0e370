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
  if (order.size() == 0) return;
  const std::uint64_t mean = indexes.sample_bytes() / indexes.samples() + 1;
  piece = samples_of_piece(memory, order.tracks(), world, mean, order.slice());
  const std::uint64_t looked_at = std::min<std::uint64_t>(order.tracks(), 16);
  std::uint64_t samples = 0;
  std::uint64_t asked = 0;
  std::uint64_t read = 0;
  std::uint64_t used = 0;
  for (std::uint64_t i = 0; i < looked_at; ++i) {
    const std::uint64_t track = i * order.tracks() / looked_at;
    const std::uint64_t length = std::min<std::uint64_t>(order.track(track).length, 512);
    for (std::uint64_t at = 0; at < length;) {
      const std::uint64_t count = std::min(piece, left_of_slice(order, track, at));
      slice_piece one(indexes, order, track, at, count, part, gap);
      asked += one.ranges().size();
      for (const slice_piece::range& r : one.ranges()) read += r.of == nullptr ? r.length() : 0;
      for (const slice_piece::group& g : one.groups()) read += g.end - g.begin;
      for (std::uint64_t k = at; k < at + count; ++k) {
        const sample_place& place = one.at(k).place;
        const auto number = static_cast<std::size_t>(place.ordinal);
        const shard_index& index = indexes[static_cast<std::size_t>(place.shard)];
        if (of_objects(indexes.format())) {
          used += index.end(number);
        } else if (index.row_arrays() != nullptr) {
          used += index.end(number) - index.offset(number);
        } else {
          used += one.rows_of(one.at(k)).end(number) - one.rows_of(one.at(k)).offset(number);
        }
      }
      samples += count;
      at += count;
    }
  }
  if (used == 0) return;
  requests = static_cast<double>(asked) / static_cast<double>(samples);
  bytes = static_cast<double>(read) / static_cast<double>(used);
}

}  // namespace millrace::detail
