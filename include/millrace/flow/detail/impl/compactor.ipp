// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/detail/compactor.hpp>

namespace millrace::detail {

MILLRACE_INLINE bool slab_density::sparse(const bytes& slice, std::size_t size) noexcept {
  seen& s = find(slice);
  s.shown += size;
  shown_ += size;
  return shown_ + slice.retained() < kept_ / 2;
}

MILLRACE_INLINE slab_density::seen& slab_density::find(const bytes& slice) noexcept {
  for (seen& s : slabs_) {
    if (s.slab != slice.memory()) continue;
    if (s.use == slice.use()) return s;
    s.slab = nullptr;  // given back and filled again
  }
  seen& s = slabs_[oldest_];
  oldest_ = (oldest_ + 1) % (sizeof slabs_ / sizeof slabs_[0]);
  shown_ -= s.shown;
  kept_ += slice.retained() - s.bytes;
  s = seen{slice.memory(), slice.use(), slice.retained(), 0};
  return s;
}

}  // namespace millrace::detail
