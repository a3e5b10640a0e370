// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <millrace/formats/shard_format.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/order/sample_mix.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Indexed data sets that epochs() mixes, as its readers take them.
struct dataset_mix {
  struct member {
    std::shared_ptr<const index_set> indexes;  ///< never null, nor without samples
    /// Against the weights of the others; not 0. Exact to 1 / tracks.
    std::uint64_t weight = 1;
    std::string prefix = {};  ///< what stands in front of its indexes' names
    std::uint64_t seed = 0;   ///< beside that of the training; another one gives another order of its samples
    std::shared_ptr<const shard_format> format = {};  ///< null: tar_shards()
  };

  std::vector<member> members;
  mix_until until = mix_until::last_end;  ///< where an epoch ends
  std::uint64_t samples = 0;              ///< of all members together in an epoch, with mix_until::forever; not 0 then
};

}  // namespace millrace::detail
