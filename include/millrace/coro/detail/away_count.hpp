// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/wait_list.hpp>

namespace millrace::detail {

/// How much of what a pipeline has dropped other threads still work on: functions on a pool that had begun, tasks on
/// other loops. They may use what the program has lent to the pipeline, so the end of a run waits for them. One thread:
/// the pipeline's.
class away_count {
 public:
  /// Told once, when nothing is away any more.
  class listener : public waiter {
   public:
    virtual void none_away() noexcept = 0;

   protected:
    ~listener() = default;
  };

  bool none() const noexcept { return count_ == 0; }
  void left() noexcept { ++count_; }
  void came_home() noexcept {
    if (--count_ > 0) return;
    while (count_ == 0 && !listeners_.empty()) listeners_.pop().none_away();
  }
  /// For when there is something away.
  void tell(listener& l) noexcept { listeners_.push(l); }

 private:
  std::size_t count_ = 0;
  wait_list<listener> listeners_;
};

}  // namespace millrace::detail
