// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace millrace {

/// The most that one stage holds at once: what async_generator::bounds() lists, to be checked against a memory budget
/// before anything runs.
struct stage_bounds {
  const char* name;   ///< as in the stage table; lives as long as the pipeline
  std::size_t items;  ///< waiting in the stage or worked on by it; not what the consumer has taken
  std::size_t bytes;  ///< of those items; 0 where their size cannot be known
  /// Set in an entry that states no bound, but whose share of the items it is: see async_generator::of_rank().
  std::optional<std::uint32_t> rank = {};
};

namespace detail {

/// What a generator carries besides its coroutine when it was made by a pipe.
struct generator_extras {
  std::vector<stage_bounds> bounds;  // sources first
  std::vector<std::shared_ptr<void>> kept;    // function objects whose coroutines refer to them
};

}  // namespace detail
}  // namespace millrace
