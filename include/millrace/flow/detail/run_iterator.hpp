// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The iterator of a range for one pass over items of type T, which `Run` holds one at a time: it has advance(),
/// look() for the item in hand, and in_hand(), all of them for this friend.
template <class Run, class T>
class run_iterator {
 public:
  using value_type = T;
  using difference_type = std::ptrdiff_t;

  run_iterator() = default;
  explicit run_iterator(Run& r) noexcept : run_(&r) {}

  T& operator*() const noexcept { return run_->look(); }
  T* operator->() const noexcept { return std::addressof(run_->look()); }
  run_iterator& operator++() {
    run_->advance();
    return *this;
  }
  void operator++(int) { run_->advance(); }
  bool operator==(std::default_sentinel_t) const noexcept { return !run_->in_hand(); }

 private:
  Run* run_ = nullptr;
};

}  // namespace millrace::detail
