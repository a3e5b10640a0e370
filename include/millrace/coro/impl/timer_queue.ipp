// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/timer_queue.hpp>

namespace millrace {

MILLRACE_INLINE void timer_queue::add(timer_node& node, time_point due) {
  remove(node);
  heap_.push_back(&node);
  node.due_ = due < fired_ ? fired_ : due;  // what is late anyway must not overtake those who were late before it
  node.order_ = ++armed_;
  node.index_ = heap_.size() - 1;
  up(node.index_);
}

MILLRACE_INLINE void timer_queue::remove(timer_node& node) noexcept {
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

MILLRACE_INLINE std::size_t timer_queue::fire_due(time_point now) noexcept {
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

MILLRACE_INLINE void timer_queue::up(std::size_t i) noexcept {
  timer_node* node = heap_[i];
  while (i > 0) {
    const std::size_t parent = (i - 1) / 2;
    if (!before(node, heap_[parent])) break;
    place(i, heap_[parent]);
    i = parent;
  }
  place(i, node);
}

MILLRACE_INLINE void timer_queue::down(std::size_t i) noexcept {
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

}  // namespace millrace
