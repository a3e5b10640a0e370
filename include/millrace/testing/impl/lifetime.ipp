// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/lifetime.hpp>

namespace millrace::testing {

MILLRACE_INLINE void lifetime::add(const void* object, const void* from, std::size_t* counter) {
  std::lock_guard lock(mutex_);
  if (from != nullptr && objects_.count(from) == 0) ++errors_;
  if (!objects_.insert(object).second) ++errors_;
  ++*counter;
  live_set_size_ = objects_.size();
  if (live_set_size_ > peak_) peak_ = live_set_size_;
}

MILLRACE_INLINE void lifetime::remove(const void* object) noexcept {
  std::lock_guard lock(mutex_);
  if (objects_.erase(object) == 0) ++errors_;
  live_set_size_ = objects_.size();
}

}  // namespace millrace::testing
