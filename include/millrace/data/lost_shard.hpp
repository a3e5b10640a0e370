// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

/// What a training could not have of one shard, where a failure_policy bears it.
class lost_shard {
 public:
  std::string shard;          ///< its URL, without secrets
  std::uint64_t samples = 0;  ///< of this rank, epoch by epoch
  std::string reason;         ///< of the first of them
};

}  // namespace millrace
