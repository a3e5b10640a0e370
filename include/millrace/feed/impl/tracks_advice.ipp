// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
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

}  // namespace millrace
