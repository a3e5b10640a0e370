// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE stream_description::stream_description() noexcept = default;
MILLRACE_INLINE stream_description::stream_description(stream_description&&) noexcept = default;
MILLRACE_INLINE stream_description& stream_description::operator=(stream_description&&) noexcept = default;
MILLRACE_INLINE stream_description::~stream_description() = default;

MILLRACE_INLINE void stream_description::followed_by(stream_description later) {
  for (const stage_bounds& each : later.bounds) bounds.push_back(each);
  // A state inside a window is of samples in their order: after a stage that changes it none goes on with that.
  bool reordered = false;
  for (const place_note& n : places) reordered = reordered || (n.effect == place_effect::stateless && n.number == 1);
  places.insert(places.end(), later.places.begin(), later.places.end());
  if (!rank) rank = later.rank;
  if (!ranks) ranks = std::move(later.ranks);
  many_positions = many_positions || later.many_positions || (position && later.position);
  if (!reordered) window += later.window;
  if (later.counted_later != nullptr) counted_later = std::move(later.counted_later);
  if (later.batch != 0) batch = later.batch;
  if (!position) position = std::move(later.position);
}

MILLRACE_INLINE stream_description stream_description::taken() noexcept {
  stream_description all(std::move(*this));
  *this = stream_description();
  batch = all.batch;
  return all;
}

MILLRACE_INLINE void stream_description::follow(stream_description&& upstream) {
  if (window != 0 && upstream.counted_later != nullptr) *upstream.counted_later = true;
  upstream.followed_by(std::move(*this));
  *this = std::move(upstream);
}

}  // namespace millrace::detail
