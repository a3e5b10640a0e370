// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/order/rank_share.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE rank_share::rank_share(std::uint64_t tracks, std::uint64_t index, std::uint64_t world,
                                       std::uint64_t hosts)
    : hosts_(hosts), tracks_(tracks), index_(index), world_(world) {
  if (index >= world) {
    throw configuration_error("rank " + std::to_string(index) + " does not exist among " + std::to_string(world));
  }
  if (tracks == 0 || tracks > std::uint64_t{1} << 24) throw configuration_error("tracks must be 1 to 2^24");
  if (hosts == 0 || world % hosts != 0 || tracks % hosts != 0) {
    throw configuration_error(std::to_string(world) + " ranks and " + std::to_string(tracks) +
                              " tracks cannot be shared out evenly among " + std::to_string(hosts) + " hosts");
  }
  world_ /= hosts;
  host_ = index_ / world_;
  index_ %= world_;
  tracks_ = tracks /= hosts;
  for (std::uint64_t p = 2; tracks > 1; ++p) {
    if (p * p > tracks) p = tracks;  // what is left is a prime
    for (; tracks % p == 0; tracks /= p) radices_.push_back(p);
  }
}

MILLRACE_INLINE std::vector<float> rank_share::weights(order_step step, std::size_t batch) const {
  std::vector<float> mask(batch, 0.0F);
  std::fill_n(mask.begin(), std::min<std::uint64_t>(size(step), batch), 1.0F);
  return mask;
}

MILLRACE_INLINE std::uint64_t rank_share::size(order_step step) const noexcept { return size_of(of_host(step)); }

MILLRACE_INLINE std::uint64_t rank_share::size_of(order_step step) const noexcept {
  if (tracks_ % world_ == 0) {
    const std::uint64_t first = (index_ + world_ - step.begin % world_) % world_;
    return first < step.count ? (step.count - first - 1) / world_ + 1 : 0;
  }
  return part(step.count, index_ + 1, world_) - part(step.count, index_, world_);
}

/// How many of the tracks [0, tracks) have a kappa below this: a sum over the digits. Those that share the digits down
/// to one, and are less there, are every so-many-th track.
MILLRACE_INLINE std::uint64_t rank_share::below(std::uint64_t tracks, std::uint64_t kappa) const noexcept {
  if (kappa >= tracks_) return tracks;
  std::uint64_t n = 0;
  std::uint64_t unit = tracks_;
  std::uint64_t first = 0;
  std::uint64_t stride = 1;
  for (const std::uint64_t radix : radices_) {
    unit /= radix;
    const std::uint64_t digit = kappa / unit;
    kappa %= unit;
    for (std::uint64_t d = 0; d < digit; ++d) {
      const std::uint64_t begin = first + d * stride;
      if (tracks > begin) n += (tracks - begin - 1) / (stride * radix) + 1;
    }
    first += digit * stride;
    stride *= radix;
  }
  return n;
}

/// How many positions of the step are in tracks with a kappa below this.
MILLRACE_INLINE std::uint64_t rank_share::before(order_step step, std::uint64_t kappa) const noexcept {
  const std::uint64_t rounds = step.count / tracks_;
  const std::uint64_t begin = step.begin % tracks_;
  const std::uint64_t end = begin + step.count % tracks_;
  std::uint64_t n = below(std::min(end, tracks_), kappa) - below(begin, kappa);
  if (end > tracks_) n += below(end - tracks_, kappa);
  return rounds * std::min(kappa, tracks_) + n;
}

MILLRACE_INLINE std::uint64_t rank_share::track_of(std::uint64_t kappa) const noexcept {
  std::uint64_t unit = tracks_;
  std::uint64_t stride = 1;
  std::uint64_t track = 0;
  for (const std::uint64_t radix : radices_) {
    unit /= radix;
    track += kappa / unit * stride;
    kappa %= unit;
    stride *= radix;
  }
  return track;
}

MILLRACE_INLINE void rank_share::positions(order_step step, std::vector<std::uint64_t>& out) const {
  out.clear();
  step = of_host(step);
  const std::uint64_t end = step.begin + step.count;
  const std::uint64_t wanted = size_of(step);
  if (wanted == 0) return;
  if (tracks_ % world_ == 0) {
    const std::uint64_t first = step.begin + (index_ + world_ - step.begin % world_) % world_;
    for (std::uint64_t g = first; g < end; g += world_) out.push_back(g * hosts_ + host_);
    return;
  }
  const std::uint64_t place = part(step.count, index_, world_);
  std::uint64_t kappa = 0;  // the last one with no more than `place` positions before it
  for (std::uint64_t beyond = tracks_; beyond - kappa > 1;) {
    const std::uint64_t middle = kappa + (beyond - kappa) / 2;
    (before(step, middle) <= place ? kappa : beyond) = middle;
  }
  std::uint64_t skip = place - before(step, kappa);
  for (; out.size() < wanted; ++kappa) {
    const std::uint64_t track = track_of(kappa);
    std::uint64_t g = step.begin + (track + tracks_ - step.begin % tracks_) % tracks_;
    for (; g < end && out.size() < wanted; g += tracks_) {
      if (skip == 0) {
        out.push_back(g * hosts_ + host_);
      } else {
        --skip;
      }
    }
  }
  std::sort(out.begin(), out.end());
}

}  // namespace millrace::inline MILLRACE_ABI
