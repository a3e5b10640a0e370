// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/feed/detail/deal_windows.hpp>

namespace millrace::detail {

MILLRACE_INLINE void check_window_options(const epochs_request& options) {
  if (options.rank.world_size > 1) check_ranks_end(options.equal, options.uneven);
}

}  // namespace millrace::detail
