// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/compiler.hpp>
#include <millrace/shards/detail/read_window.hpp>

namespace millrace::detail {

MILLRACE_INLINE void read_window::took(std::size_t held, duration waited, time_point now) noexcept {
  if (bytes_ == most_) return;
  held_ += held;
  waited_ += waited;
  if (held_ < (begun_ ? bytes_ : bytes_ / 2)) return;
  if (begun_) judge(now - began_);
  begun_ = true;
  began_ = now;
  held_ = 0;
  waited_ = duration(0);
}

MILLRACE_INLINE void read_window::judge(duration round) noexcept {
  const double waiting = static_cast<double>(waited_.count());
  const double per_byte = waiting / static_cast<double>(held_);
  if (doubled_ && per_byte > paid * before_) resting_ = rest;
  doubled_ = false;
  if (resting_ > 0) {
    --resting_;
  } else if (waiting > noticed * static_cast<double>(round.count())) {
    bytes_ = bytes_ > most_ / 2 ? most_ : 2 * bytes_;
    doubled_ = true;
    before_ = per_byte;
  }
}

}  // namespace millrace::detail
