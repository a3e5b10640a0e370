// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/train/epochs_options.hpp>
#include <millrace/train/equal_batches.hpp>
#include <millrace/train/shard_epochs.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_COROUTINE_BODY stream<shard> shard_epochs(stream<shard> list, const shard_epochs_options& options) {
  options.rank.check();
  if (options.epochs != endless && options.epochs > UINT64_MAX - options.first_epoch) {
    throw configuration_error("shard_epochs: too many .epochs");
  }
  if (options.rank.world_size > 1) detail::check_ranks_end(options.equal, options.uneven);
  std::shared_ptr<detail::equal_state> equal;
  if (options.equal != nullptr) {
    equal = detail::equal_state::in(*options.equal);
    equal->begin(options.rank, options.seed, options.first_epoch,
                 detail::end_epoch_of(options.first_epoch, options.epochs));
  }
  return stream<shard>(detail::deal_shards<shard>(std::move(list).generator(), options, std::move(equal)))
      .named("shard_epochs")
      .of_rank(options.rank);
}

}  // namespace millrace
