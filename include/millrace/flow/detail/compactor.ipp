// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/detail/compactor.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE bool slab_density::sparse(const bytes& slice, std::size_t size) noexcept {
  seen& s = find(slice);
  s.shown += size;
  shown_ += size;
  const bool all_come = shows_what_is_given(slice, size);
  return shown_ + slice.retained() < kept_ / 2 && !all_come;
}

MILLRACE_INLINE bool slab_density::shows_what_is_given(const bytes& slice, std::size_t size) noexcept {
  constexpr std::uint64_t far = std::uint64_t(1) << 30;
  const std::uint64_t total = slice.given();
  if (total == 0) return false;
  if (total_ == 0 || total > total_ + far || total_ > total + far) {  // the first one, or of another source
    total_ = total;
    given_ = came_ = 0;
    return false;
  }
  if (total > total_) {  // stages before this one may read ahead
    given_ += total - total_;
    total_ = total;
  }
  came_ += size;
  if (given_ > 16 * slice.retained()) {
    given_ /= 2;
    came_ /= 2;
  }
  return came_ + slice.retained() >= given_ / 2;
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
