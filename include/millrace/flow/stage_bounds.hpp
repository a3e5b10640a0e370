// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace millrace {

/// The most that one stage holds at once: what stream::bounds() lists, to be checked against a memory budget before
/// anything runs.
struct stage_bounds {
  const char* name;   ///< as in the stage table; lives as long as the pipeline
  std::size_t items;  ///< waiting in the stage or worked on by it; not what the consumer has taken
  std::size_t bytes;  ///< of those items; 0 where their size cannot be known
};

}  // namespace millrace
