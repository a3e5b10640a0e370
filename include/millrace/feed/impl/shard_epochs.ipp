// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/feed/equal_batches.hpp>
#include <millrace/feed/shard_epochs.hpp>

namespace millrace {

MILLRACE_COROUTINE_BODY stream<shard> epochs(stream<shard> list, const shard_epochs_options& options) {
  options.rank.check();
  if (options.epochs > UINT64_MAX - options.first_epoch) throw configuration_error("epochs: too many .epochs");
  if (options.rank.world_size > 1 && options.equal == nullptr && !options.uneven) {
    throw configuration_error(
        "epochs: without an index the ranks have unequally many batches, and a training that waits for all of them in "
        "every step would hang: give .equal (equal_batches), an index, or .uneven = true where no rank waits");
  }
  std::shared_ptr<detail::equal_state> equal;
  if (options.equal != nullptr) {
    equal = equal_batches_door::state(*options.equal);
    if (std::exchange(equal->begun, true)) throw usage_error("epochs: .equal is for one run, and was given to another");
    equal->rank = options.rank;
    equal->seed = options.seed;
    equal->first_epoch = options.first_epoch;
    equal->end_epoch = options.first_epoch + options.epochs;
  }
  return stream<shard>(detail::deal_shards<shard>(std::move(list).generator(), options, std::move(equal)))
      .named("epochs")
      .of_rank(options.rank.index);
}

}  // namespace millrace
