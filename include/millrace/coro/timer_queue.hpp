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
  void add(timer_node& node, time_point due) {
    remove(node);
    heap_.push_back(&node);
    node.due_ = due < fired_ ? fired_ : due;  // what is late anyway must not overtake those who were late before it
    node.order_ = ++armed_;
    node.index_ = heap_.size() - 1;
    up(node.index_);
  }

  void remove(timer_node& node) noexcept {
    const std::size_t hole = node.index_;
    if (hole == timer_node::npos) return;
    node.index_ = timer_node::npos;
    timer_node* last = heap_.back();
    heap_.pop_back();
    if (last == &node) return;
    place(hole, last);
    up(hole);
    down(last->index_);
  }

  /// Fires everything due at `now` that was armed before the call; returns how many fired.
  std::size_t fire_due(time_point now) noexcept {
    fired_ = now;
    const std::uint64_t limit = armed_;
    std::size_t fired = 0;
    while (!heap_.empty() && heap_.front()->due_ <= now && heap_.front()->order_ <= limit) {
      timer_node& node = *heap_.front();
      remove(node);
      node.fire();
      ++fired;
    }
    return fired;
  }

 private:
  static bool before(const timer_node* a, const timer_node* b) noexcept {
    return a->due_ != b->due_ ? a->due_ < b->due_ : a->order_ < b->order_;
  }
  void place(std::size_t i, timer_node* node) noexcept {
    heap_[i] = node;
    node->index_ = i;
  }
  void up(std::size_t i) noexcept {
    timer_node* node = heap_[i];
    while (i > 0) {
      const std::size_t parent = (i - 1) / 2;
      if (!before(node, heap_[parent])) break;
      place(i, heap_[parent]);
      i = parent;
    }
    place(i, node);
  }
  void down(std::size_t i) noexcept {
    timer_node* node = heap_[i];
    for (;;) {
      std::size_t child = 2 * i + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], node)) break;
      place(i, heap_[child]);
      i = child;
    }
    place(i, node);
  }

  std::vector<timer_node*> heap_;
  std::uint64_t armed_ = 0;
  time_point fired_{};  // when fire_due() was last called
};

}  // namespace millrace
