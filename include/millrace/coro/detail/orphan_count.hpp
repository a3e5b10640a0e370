// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/wait_list.hpp>

namespace millrace::detail {

/// How many operations that a pipeline has dropped go on in other threads: functions on a pool that had begun, tasks on
/// other loops. They may use what the program has lent to the pipeline, so the end of a run waits for them. One thread:
/// the pipeline's.
class orphan_count {
 public:
  /// Told once, when none is left.
  class listener : public waiter {
   public:
    virtual void none_left() noexcept = 0;

   protected:
    ~listener() = default;
  };

  bool none() const noexcept { return count_ == 0; }
  void add() noexcept { ++count_; }
  void remove() noexcept {
    if (--count_ > 0) return;
    while (count_ == 0 && !listeners_.empty()) listeners_.pop().none_left();
  }
  /// Where there is one: tells `l` when none is left.
  void tell(listener& l) noexcept { listeners_.push(l); }

 private:
  std::size_t count_ = 0;
  wait_list<listener> listeners_;
};

}  // namespace millrace::detail
