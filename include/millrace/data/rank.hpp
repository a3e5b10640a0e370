// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/error.hpp>

namespace millrace {

/// The number of this process among those that train together.
struct rank {
  std::uint32_t index = 0;             ///< 0 to world_size - 1
  std::uint32_t world_size = 1;        ///< processes in all
  std::uint32_t local_index = 0;       ///< among the processes of this machine
  std::uint32_t local_world_size = 1;  ///< processes on this machine
  const char* source = "explicit";     ///< where these numbers come from; a literal

  /// Throws configuration_error for numbers that contradict each other.
  void check() const;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline void rank::check() const {
  if (world_size == 0 || index >= world_size) {
    throw configuration_error("rank " + std::to_string(index) + " does not exist among " + std::to_string(world_size) +
                              " processes (" + source + ")");
  }
}

}  // namespace millrace
