// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <millrace/base/clock.hpp>

namespace millrace::detail {

/// How many bytes `fetch` holds ahead at the moment: little at first, more as long as that spares its consumer waiting.
///
/// A round is the time in which a window of bytes is handed over. After a round in which the consumer waited, the
/// window doubles. That has paid when the consumer waits less for each byte of the round that follows. Where it does
/// not, because the link, the store or this machine is the limit, the window rests for `rest` rounds: the memory that
/// is added then is a fifth of what has been read. The first half of a window counts for nothing: connections are new,
/// and no window shortens the wait for the first byte.
class read_window {
 public:
  static constexpr int rest = 4;
  /// Waiting is what takes more than this share of a round.
  static constexpr double noticed = 1.0 / 64;
  /// A doubling has paid when the consumer waits at most this share of what it waited before. Half would be ideal.
  static constexpr double paid = 0.7;

  /// From `least` bytes towards `most`.
  read_window(std::size_t least, std::size_t most) noexcept : bytes_(std::min(least, most)), most_(most) {}

  std::size_t bytes() const noexcept { return bytes_; }

  /// A part was handed over at `now` that had taken `held` bytes of the window. The consumer has waited for it for
  /// `waited`.
  void took(std::size_t held, duration waited, time_point now) noexcept;

 private:
  void judge(duration round) noexcept;

  std::size_t bytes_;
  const std::size_t most_;
  // The round.
  bool begun_ = false;
  time_point began_{};
  std::size_t held_ = 0;
  duration waited_{0};
  // The latest doubling.
  bool doubled_ = false;  // the round is the first one since
  double before_ = 0;     // waiting for each byte, in ns, in the round before
  int resting_ = 0;       // rounds still to come
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/detail/impl/read_window.ipp>
#endif
