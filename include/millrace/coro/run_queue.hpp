// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/rng.hpp>
#include <millrace/coro/ready_node.hpp>

namespace millrace {

/// First-in first-out list of coroutines that are ready to go on. Allocates nothing. One thread.
///
/// shuffle() makes pop() take a random node instead: for tests that must not depend on the order in which independent
/// coroutines become ready.
class run_queue {
 public:
  run_queue() noexcept { head_.prev_ = head_.next_ = &head_; }
  run_queue(const run_queue&) = delete;
  run_queue& operator=(const run_queue&) = delete;
  ~run_queue() {
    while (!empty()) head_.next_->unlink();
    head_.prev_ = head_.next_ = nullptr;
  }

  bool empty() const noexcept { return head_.next_ == &head_; }

  /// Appends `node`; a node that is already queued stays where it is.
  void push(ready_node& node) noexcept {
    if (node.linked()) return;
    node.prev_ = head_.prev_;
    node.next_ = &head_;
    head_.prev_->next_ = &node;
    head_.prev_ = &node;
  }

  /// Unlinks and returns the next node; the queue must not be empty.
  ready_node& pop() noexcept {
    ready_node* node = head_.next_;
    if (shuffled_) {
      std::size_t count = 0;
      for (ready_node* n = head_.next_; n != &head_; n = n->next_) ++count;
      for (std::size_t skip = random_.below(count); skip > 0; --skip) node = node->next_;
    }
    node->unlink();
    return *node;
  }

  /// From now on pop() chooses at random, reproducibly from `seed`.
  void shuffle(std::uint64_t seed) noexcept {
    shuffled_ = true;
    random_ = rng(seed);
  }

 private:
  ready_node head_;
  bool shuffled_ = false;
  rng random_{0};
};

}  // namespace millrace
