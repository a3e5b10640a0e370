// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/error.hpp>

namespace millrace {

/// This process among those that train together.
struct rank {
  std::uint32_t index = 0;             ///< 0 to world_size - 1
  std::uint32_t world_size = 1;        ///< processes in all
  std::uint32_t local_index = 0;       ///< among the processes of this machine
  std::uint32_t local_world_size = 1;  ///< processes on this machine
  const char* source = "explicit";     ///< who said so; a literal

  /// Throws configuration_error for numbers that contradict each other.
  void check() const;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/data/impl/rank.ipp>
#endif
