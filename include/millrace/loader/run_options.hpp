// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include <millrace/data/rank.hpp>

namespace millrace {

/// Whether run() shows a progress line on standard error.
enum class progress {
  automatic,  ///< when standard error is a terminal and the rank is 0
  off,
  on,  ///< always; one line every ten seconds where standard error is no terminal
};

/// How a pipeline is run: runtime::run(), run(). What it runs on is in runtime_options.
struct run_options {
  std::size_t prefetch = 2;  ///< items made ahead of the training thread, at least 1
  /// Of those items together, for types with byte_size(); one item always passes. 0: no bound. Stated where a budget is
  /// set (not for batches of a device: their slots are to_device's).
  std::size_t prefetch_bytes = 0;
  /// Bytes; when set, what the stages declare to hold must fit into it, prefetch_bytes included. Beside it there are
  /// the item in the training thread's hands, one that each other stage works on, and what jobs of a pool allocate.
  /// What is left is for stages that learn from the data that they need more: unpacking, and slots that grow.
  std::size_t budget = 0;
  progress show = progress::automatic;
  /// Whose progress it is; not given: the runtime's, else split_by_rank's, else 0.
  std::optional<millrace::rank> rank = {};
};

}  // namespace millrace
