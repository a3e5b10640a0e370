// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/rank.hpp>

namespace millrace {

MILLRACE_INLINE void rank::check() const {
  if (world_size == 0 || index >= world_size) {
    throw configuration_error("rank " + std::to_string(index) + " does not exist among " + std::to_string(world_size) +
                              " processes (" + source + ")");
  }
}

}  // namespace millrace
