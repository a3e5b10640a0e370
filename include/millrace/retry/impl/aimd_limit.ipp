// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/retry/aimd_limit.hpp>

namespace millrace {

MILLRACE_INLINE void aimd_limit::refused(std::uint64_t generation, std::size_t under_way) noexcept {
  if (generation != generation_) return;
  ++generation_;
  const auto most = static_cast<double>(under_way);
  if (!limited_) lift_at_ = 2 * most;
  limit_ = std::max(1.0, (limited_ ? std::min(limit_, most) : most) / 2);
  limited_ = true;
}

MILLRACE_INLINE void aimd_limit::succeeded() noexcept {
  if (!limited_) return;
  limit_ += 1 / limit_;
  if (limit_ >= lift_at_) limited_ = false;
}

}  // namespace millrace
