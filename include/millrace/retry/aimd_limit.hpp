// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

/// How many requests may be under way at a time: additive increase, multiplicative decrease (Chiu and Jain 1989).
///
/// No limit until the store asks for fewer requests; then half of what was under way, at least one. Every success adds
/// the share of one request per round, until there is twice the room of what was under way at the first refusal: then
/// the limit is lifted. A burst of refusals halves once: only requests begun after the last halving count. Not for
/// several threads.
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

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/impl/aimd_limit.ipp>
#endif
