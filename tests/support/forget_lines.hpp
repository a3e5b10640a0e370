// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <millrace/base/detail/first_time.hpp>

namespace millrace::test {

/// Makes this process one that has said nothing yet.
inline void forget_lines() {
  for (std::atomic<std::uint64_t>& line : detail::lines_said) line = 0;
}

}  // namespace millrace::test
