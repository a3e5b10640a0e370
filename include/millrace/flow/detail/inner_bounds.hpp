// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <millrace/base/error.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::detail {

/// For stages that get generators while they run: throws configuration_error where the stages of `inner` declare more
/// than `stated` bytes together, or nothing that could be compared. 0: nothing was stated, so no budget counts on it.
template <class T>
void check_inner_bounds(const stream<T>& inner, std::size_t stated, const char* stage) {
  if (stated == 0) return;
  std::size_t left = stated;
  for (const stage_bounds& b : inner.bounds()) {
    if ((b.bytes == 0 && b.items > 0) || b.bytes > left) {
      throw configuration_error(std::string(stage) + ": the pipeline that it was given " +
                                (b.bytes == 0 ? std::string("states no bound in bytes for its stage ") + b.name
                                              : std::string("may hold more than .inner_bytes, which is ") +
                                                    std::to_string(stated) + " (up to its stage " + b.name + ')'));
    }
    left -= b.bytes;
  }
}

}  // namespace millrace::detail
