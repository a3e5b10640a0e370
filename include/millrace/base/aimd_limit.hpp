// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// How many requests may be under way at a time: additive increase, multiplicative decrease (Chiu and Jain 1989).
///
/// No limit until the store asks for fewer requests; then half of those in flight, at least one. Every success adds the
/// share of one request per round, until the limit is twice the number in flight at the first refusal: then it is
/// lifted. A burst of refusals halves it once: only requests begun after the last halving count. Not thread-safe.
class aimd_limit {
 public:
  static constexpr std::size_t none = SIZE_MAX;

  std::size_t limit() const noexcept { return limited_ ? static_cast<std::size_t>(limit_) : none; }

  /// To be kept with every request that begins.
  std::uint64_t generation() const noexcept { return generation_; }

  /// A request of that generation was refused while `under_way` were, itself included.
  void refused(std::uint64_t generation, std::size_t under_way) noexcept;
  void succeeded() noexcept;

 private:
  bool limited_ = false;
  double limit_ = 0;
  double lift_at_ = 0;
  std::uint64_t generation_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline void aimd_limit::refused(std::uint64_t generation, std::size_t under_way) noexcept {
  if (generation != generation_) return;
  ++generation_;
  const auto most = static_cast<double>(under_way);
  if (!limited_) lift_at_ = 2 * most;
  limit_ = std::max(1.0, (limited_ ? std::min(limit_, most) : most) / 2);
  limited_ = true;
}

inline void aimd_limit::succeeded() noexcept {
  if (!limited_) return;
  limit_ += 1 / limit_;
  if (limit_ >= lift_at_) limited_ = false;
}

}  // namespace millrace
