// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The number of this process among those that train together.
struct rank {
  std::uint32_t index = 0;             ///< 0 to world_size - 1
  std::uint32_t world_size = 1;        ///< processes in all
  std::uint32_t local_index = 0;       ///< among the processes of this machine
  std::uint32_t local_world_size = 1;  ///< processes on this machine
  const char* source = "explicit";     ///< origin of these numbers; a literal

  /// Throws configuration_error for numbers that contradict each other.
  void check() const;
};

/// The number of machines that the processes are on, by the variables of their launcher: for epochs_options::hosts.
/// configuration_error if that is not known, or not equally many are on each.
std::uint64_t hosts_of(const rank& r);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline void rank::check() const {
  if (world_size == 0 || index >= world_size) {
    throw configuration_error("rank " + std::to_string(index) + " does not exist among " + std::to_string(world_size) +
                              " processes (" + source + ")");
  }
}

inline std::uint64_t hosts_of(const rank& r) {
  r.check();
  if (r.local_index >= r.local_world_size) {
    throw configuration_error("how many processes a machine has is not known (" + std::string(r.source) +
                              "): give the number of hosts");
  }
  if (r.world_size % r.local_world_size != 0) {
    throw configuration_error(std::to_string(r.world_size) + " processes, " + std::to_string(r.local_world_size) +
                              " of them on this machine (" + r.source + "): not equally many on each");
  }
  return r.world_size / r.local_world_size;
}

}  // namespace millrace
