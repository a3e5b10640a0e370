// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/body.hpp>

namespace millrace::tar::detail {

MILLRACE_INLINE bool body_collector::collect(input& in, bytes& out) {
  const auto wanted = static_cast<std::size_t>(wanted_);
  if (!memory_) {
    const std::size_t together = in.together();
    if (together == 0 && wanted != 0) return false;
    if (together >= wanted) {
      in.take(wanted, out);
      return true;
    }
    memory_ = writable_bytes::allocate(wanted);
  }
  done_ += in.copy(memory_.data() + done_, wanted - static_cast<std::size_t>(done_));
  if (done_ != wanted_) return false;
  out = memory_.share(0, wanted);
  memory_ = writable_bytes();
  return true;
}

}  // namespace millrace::tar::detail
