// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/feed/detail/reading_estimate.hpp>
#include <millrace/feed/tracks_advice.hpp>

namespace millrace {

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
  if (fit >= tracks) return {};
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
  if (reading.bytes >= enough(order.tracks)) return {};
  const auto with = [&](std::uint64_t tracks, std::size_t bytes) {
    const sample_order o(indexes.counts(), 0, 0, {.tracks = tracks, .slice = order.slice});
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
  if (fit >= world) {
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

}  // namespace millrace
