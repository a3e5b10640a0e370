// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/train/detail/reading_estimate.hpp>
#include <millrace/train/detail/slice_piece.hpp>
#include <millrace/train/tracks_advice.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// True where a track that takes a part of a slice reads about all of it, as the part is scattered over it. Rows and
/// objects are read by themselves, and groups and frames are unpacked whole, however short a slice is.
inline bool reads_slices_again(const index_set& indexes) noexcept {
  const bool packed = std::any_of(indexes.begin(), indexes.end(), [](const shard_index& i) { return i.is_packed(); });
  return !packed && indexes.counts()->groups().empty() && !indexes.of_objects() &&
         !indexes.of_arrays();
}
/// Slices of a track of which 1.1 times the bytes are read: the one it begins in and those at both ends come twice.
inline constexpr std::uint64_t slices_of_track = 18;

/// The tracks of a rank whose open slices its memory holds.
inline std::uint64_t tracks_in_memory(const index_set& indexes, std::uint64_t slice) noexcept {
  constexpr std::uint64_t least = 8;
  const std::uint64_t slab = slab_of_slice(indexes, slice);
  return std::max(least, (slab < 1 * MiB ? 96 * MiB : 48 * MiB) / slab);
}
/// The tracks of a rank that have enough slices.
inline std::uint64_t tracks_of_data(const index_set& indexes, std::uint64_t slice, std::uint64_t world) noexcept {
  constexpr std::uint64_t large = 1'000'000'000;  // bytes of a rank: its tracks are long, or memory is what they lack
  const bool short_ones = slice == 1 || indexes.sample_bytes() / world >= large || !reads_slices_again(indexes);
  return indexes.samples() / slice / (short_ones ? 2 : slices_of_track) / world;
}

}  // namespace detail

MILLRACE_INLINE std::uint64_t default_slice(const index_set& indexes, std::uint64_t world) {
  if (!detail::reads_slices_again(indexes)) return indexes.slice();
  const std::uint64_t tracks = std::max(std::min<std::uint64_t>(24 * world, 960), 8 * world);
  const std::uint64_t bytes = indexes.sample_bytes() / (detail::slices_of_track * tracks);
  return indexes.slice(std::clamp<std::uint64_t>(bytes, 64 * KiB, 2 * MiB));
}

MILLRACE_INLINE std::uint64_t default_tracks(const index_set& indexes, std::uint64_t slice, std::uint64_t world) {
  constexpr std::uint64_t most = 960;
  constexpr std::uint64_t least_of_rank = 8;
  const std::uint64_t in_memory = detail::tracks_in_memory(indexes, slice);
  const std::uint64_t of_data = detail::tracks_of_data(indexes, slice, world);
  std::uint64_t t = std::max<std::uint64_t>(std::min({in_memory, of_data, std::max(least_of_rank, most / world)}), 1);
  while (most % t != 0) --t;
  return t * world;
}

namespace detail {

/// The bytes of the open slices of so many tracks, and as many to read ahead. A slice of one sample is soon taken.
inline std::uint64_t bytes_of_tracks(const index_set& indexes, const order_options& order, std::uint64_t world) {
  const std::uint64_t open = order.slice == 1 ? 1 : order.tracks / world + 1;
  return 2 * open * slab_of_slice(indexes, order.slice);
}
inline constexpr std::uint64_t least_bytes = 128 * MiB;

}  // namespace detail

MILLRACE_INLINE std::size_t default_bytes(const index_set& indexes, const order_options& order, std::uint64_t world) {
  const bool chosen = order.tracks == default_tracks(indexes, order.slice, world);
  const std::uint64_t most = detail::most_bytes(chosen && !indexes.by_groups());
  return static_cast<std::size_t>(
      std::clamp<std::uint64_t>(detail::bytes_of_tracks(indexes, order, world), detail::least_bytes, most));
}

MILLRACE_INLINE std::string default_tracks_advice(const index_set& indexes, const order_options& order,
                                                  std::uint64_t world, std::uint64_t batch) {
  const std::uint64_t step = batch * world;
  if (order.tracks >= step || order.tracks != default_tracks(indexes, order.slice, world)) return {};
  std::uint64_t fit = world;
  while (fit < step && fit < 960 * world) fit += world;
  if (fit > indexes.samples() / order.slice / 2) return {};
  const bool by_memory =
      detail::tracks_in_memory(indexes, order.slice) <= detail::tracks_of_data(indexes, order.slice, world);
  std::string price = " take .bytes of ";
  if (by_memory) {
    price += format_bytes(
        static_cast<double>(detail::bytes_of_tracks(indexes, {.tracks = fit, .slice = order.slice}, world)));
  } else {
    price = " read slices at both ends of each again, of which it has " +
            std::to_string(indexes.samples() / order.slice / fit);
  }
  return std::to_string(order.tracks) + (order.tracks == 1 ? " track" : " tracks") +
         (by_memory ? ", as many as the default .bytes hold, for the "
                    : ", as many as read the data about once, for the ") +
         std::to_string(step) + " samples of a step: about " +
         std::to_string((step + order.tracks - 1) / order.tracks) +
         " of a step are neighbours in a shard. Where shards are sorted, by class or by source, give more .tracks: " +
         std::to_string(fit) + price + '.';
}

MILLRACE_INLINE std::string detail::choose_reading(const index_set& indexes, epochs_request& options) {
  if (indexes.samples() == 0) return {};
  const std::uint64_t world = options.rank.world_size;
  std::optional<epoch_state> saved;
  if (!options.resume.empty()) saved = epoch_state::parse(options.resume);
  if (saved && saved->index != indexes.digest()) saved.reset();
  std::uint64_t slice = options.slice != 0 ? options.slice : default_slice(indexes, world);
  const bool other = saved && options.slice == 0 && !indexes.by_groups() && saved->slice != 0 && saved->slice != slice;
  if (other) slice = saved->slice;
  if (!indexes.by_groups()) options.slice = slice;
  std::string text;
  if (options.tracks == 0) {
    options.tracks = default_tracks(indexes, slice, world);
    const char* why = "";
    const bool fits = saved && saved->tracks != 0 && saved->tracks % options.hosts == 0;  // others are refused later
    if (fits && (other || saved->tracks != options.tracks)) {
      options.tracks = saved->tracks;
      why = ", those of the state";
    }
    text = std::to_string(options.tracks) + (options.tracks == 1 ? " track" : " tracks") + " of slices of " +
           std::to_string(slice) + " samples" + why;
    if (*why == 0) text += ", by the number of samples, their size and the number of ranks";
  } else if (other) {
    text = "slices of " + std::to_string(slice) + " samples, those of the state";
  }
  if (options.bytes == 0 && indexes.in_memory()) {
    options.bytes = detail::least_bytes;  // of which it takes none
  } else if (options.bytes == 0) {
    options.bytes = default_bytes(indexes, {.tracks = options.tracks, .slice = slice}, world);
    text += (text.empty() ? "" : "; ") + format_bytes(static_cast<double>(options.bytes)) +
            " of memory on each rank, for the open slices and to read ahead";
  }
  return text.empty() ? text : text + '.';
}

MILLRACE_INLINE std::string detail::choose_reading(const dataset_mix& mix, epochs_request& options) {
  if (options.tracks != 0 && options.bytes != 0) return {};
  std::string text;
  if (options.tracks == 0) {
    options.tracks = order_options().tracks;
    text = std::to_string(options.tracks) + " tracks, so that weights are exact to as small a part";
  }
  if (options.bytes == 0) {
    std::uint64_t bytes = detail::least_bytes;
    for (const dataset_mix::member& m : mix.members) {
      if (m.indexes == nullptr || m.indexes->samples() == 0) continue;
      const std::uint64_t slice = m.indexes->slice_in_mix(options.slice);
      bytes = std::max(bytes, detail::bytes_of_tracks(*m.indexes, {.tracks = options.tracks, .slice = slice},
                                                      options.rank.world_size));
    }
    options.bytes = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, detail::most_bytes(false)));
    text += (text.empty() ? "" : "; ") + format_bytes(static_cast<double>(options.bytes)) +
            " of memory on each rank, for the open slices and to read ahead";
  }
  return text + '.';
}

MILLRACE_INLINE std::string tracks_advice(std::uint64_t samples, const order_options& order, std::uint64_t world) {
  const std::uint64_t tracks = order.tracks;
  if (samples == 0 || tracks <= world || 3 * samples >= order.slice * tracks) return {};
  // A slice is visited once, and at both ends of each track once more.
  const auto of_request = [&](std::uint64_t t) { return samples / (std::min(t, samples) + samples / order.slice); };
  // The largest number that world sizes divide well, of whose tracks each has a slice; no fewer than ranks.
  std::uint64_t fit = 1;
  for (std::uint64_t t = 2; t <= samples / order.slice; t *= 2) fit = t;
  for (std::uint64_t t = 15; t <= samples / order.slice; t *= 2) fit = std::max(fit, t);
  fit = std::max(fit, world);
  if (fit >= tracks || of_request(fit) <= std::max<std::uint64_t>(of_request(tracks), 1)) return {};
  return std::to_string(tracks) + " tracks are many for " + std::to_string(samples) +
         " samples: a request brings about " + std::to_string(std::max<std::uint64_t>(of_request(tracks), 1)) +
         " of the " + std::to_string(order.slice) + " of a slice; with " + std::to_string(fit) +
         (fit == 1 ? " track" : " tracks") + " it would bring about " +
         std::to_string(std::max<std::uint64_t>(of_request(fit), 1)) + ", and shuffle less.";
}

MILLRACE_INLINE std::string bytes_advice(const index_set& indexes, const order_options& order, std::uint64_t world,
                                         const epochs_options& reading) {
  if (indexes.samples() == 0) return {};
  const std::uint64_t mean = indexes.sample_bytes() / indexes.samples() + 1;
  const auto enough = [&](std::uint64_t tracks) { return 2 * (tracks / world + 1) * mean * order.slice; };
  if (order.groups) {
    const std::uint64_t open = detail::bytes_of_tracks(indexes, order, world) / 2;
    if (reading.bytes >= open) return {};
    return "Each rank has " + std::to_string(order.tracks / world + 1) + " groups of samples open, of up to " +
           std::to_string(order.slice) + " samples, and " + format_bytes(static_cast<double>(reading.bytes)) +
           " of memory do not hold them: it takes about " + format_bytes(static_cast<double>(open)) +
           " all the same. Fewer .tracks take less, and shuffle less.";
  }
  if (reading.bytes >= enough(order.tracks)) return {};
  const auto with = [&](std::uint64_t tracks, std::size_t bytes) {
    order_options how = order;
    how.tracks = tracks;
    const sample_order o = indexes.order(0, 0, how);
    return detail::reading_estimate(indexes, o, world, bytes, reading.part, reading.gap);
  };
  const auto shown = [](const detail::reading_estimate& e) {
    char text[80];
    std::snprintf(text, sizeof text, "%.2f requests a sample and %.2f times the bytes", e.requests, e.bytes);
    return std::string(text);
  };
  const detail::reading_estimate now = with(order.tracks, reading.bytes);
  const detail::reading_estimate whole = with(order.tracks, static_cast<std::size_t>(enough(order.tracks)));
  if (now.requests <= 2 * whole.requests && now.bytes <= 1.25 * whole.bytes) return {};
  std::uint64_t fit = 0;  // as tracks_advice() chooses
  for (const std::uint64_t first : {1U, 15U}) {
    for (std::uint64_t t = first; t < order.tracks && enough(t) <= reading.bytes; t *= 2) fit = std::max(fit, t);
  }
  std::string text = format_bytes(static_cast<double>(reading.bytes)) + " of memory hold " + std::to_string(now.piece) +
                     " of the " + std::to_string(order.slice) + " samples of each slice that is open: about " +
                     shown(now) + "; with .bytes of " + format_bytes(static_cast<double>(enough(order.tracks))) + ' ' +
                     shown(whole);
  if (fit >= world && with(fit, reading.bytes).requests < now.requests) {
    text += "; with " + std::to_string(fit) + (fit == 1 ? " track " : " tracks ") + shown(with(fit, reading.bytes)) +
            ", and it would shuffle less";
  }
  return text + '.';
}

MILLRACE_INLINE std::string reading_advice(const index_set& indexes, const order_options& order, std::uint64_t world,
                                           const epochs_options& reading) {
  std::string sentence = tracks_advice(indexes.samples(), order, world);
  return sentence.empty() ? bytes_advice(indexes, order, world, reading) : sentence;
}

}  // namespace millrace::inline MILLRACE_ABI
