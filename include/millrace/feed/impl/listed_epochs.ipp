// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/feed/listed_epochs.hpp>

namespace millrace::detail {

MILLRACE_INLINE void check_window_options(const epochs_options& options) {
  if (!options.index_file.empty()) throw configuration_error("epochs: .index_file is not for index_use::none");
  if (options.shards == 0 || options.window == 0 || options.window_bytes == 0) {
    throw configuration_error("epochs: .shards, .window and .window_bytes must not be 0");
  }
  if (options.rank.world_size > 1) check_ranks_end(options.equal, options.uneven);
}

}  // namespace millrace::detail
