// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>

namespace millrace {

/// Something that happens at a time. Derive from it or hold one; fire() runs on the executor's thread between
/// coroutines, and may add timers and post coroutines but never resumes one.
class timer_node {
 public:
  timer_node() noexcept = default;
  timer_node(const timer_node&) = delete;
  timer_node& operator=(const timer_node&) = delete;

  bool armed() const noexcept { return index_ != npos; }

 protected:
  virtual ~timer_node() { MILLRACE_ASSERT(!armed(), "a timer was destroyed while it was armed"); }
  virtual void fire() noexcept = 0;

 private:
  friend class timer_queue;
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  std::size_t index_ = npos;
  time_point due_{};
  std::uint64_t order_ = 0;
};

/// Binary heap of timers; equal times fire in the order of arming. O(log n) to arm and to remove. One thread.
class timer_queue {
 public:
  timer_queue() noexcept = default;
  timer_queue(const timer_queue&) = delete;
  timer_queue& operator=(const timer_queue&) = delete;
  ~timer_queue() {
    for (timer_node* node : heap_) node->index_ = timer_node::npos;
  }

  bool empty() const noexcept { return heap_.empty(); }
  std::size_t size() const noexcept { return heap_.size(); }
  time_point next() const noexcept { return heap_.front()->due_; }

  /// Arms `node` (moves it when it is armed already). It must be removed before it is destroyed.
  void add(timer_node& node, time_point due);

  void remove(timer_node& node) noexcept;

  /// Fires everything due at `now` that was armed before the call; returns how many fired.
  std::size_t fire_due(time_point now) noexcept;

 private:
  static bool before(const timer_node* a, const timer_node* b) noexcept {
    return a->due_ != b->due_ ? a->due_ < b->due_ : a->order_ < b->order_;
  }
  void place(std::size_t i, timer_node* node) noexcept {
    heap_[i] = node;
    node->index_ = i;
  }
  void up(std::size_t i) noexcept;
  void down(std::size_t i) noexcept;

  std::vector<timer_node*> heap_;
  std::uint64_t armed_ = 0;
  time_point fired_{};  // when fire_due() was last called
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/coro/impl/timer_queue.ipp>
#endif
