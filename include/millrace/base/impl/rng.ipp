// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/base/rng.hpp>

namespace millrace {

MILLRACE_INLINE rng::rng(std::uint64_t seed) noexcept {
  for (std::uint64_t& word : state_) {
    word = detail::mix64(seed);
    seed += 0x9e3779b97f4a7c15u;
  }
}

MILLRACE_INLINE std::uint64_t rng::next() noexcept {
  const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = rotate(state_[3], 45);
  return result;
}

}  // namespace millrace
