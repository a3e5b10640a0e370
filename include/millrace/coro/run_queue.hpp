// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/rng.hpp>
#include <millrace/base/wait_list.hpp>
#include <millrace/coro/ready_node.hpp>

namespace millrace {

/// First-in first-out list of coroutines that are ready to go on. Allocates nothing. One thread.
///
/// shuffle() makes pop() take a random node instead: for tests that must not depend on the order in which independent
/// coroutines become ready.
class run_queue {
 public:
  bool empty() const noexcept { return nodes_.empty(); }

  /// Appends `node`; a node that is already queued stays where it is.
  void push(ready_node& node) noexcept {
    if (!node.linked()) nodes_.push(node);
  }

  /// Unlinks and returns the next node; the queue must not be empty.
  ready_node& pop() noexcept { return nodes_.pop(shuffled_ ? random_.below(nodes_.count()) : 0); }

  /// From now on pop() chooses at random, reproducibly from `seed`.
  void shuffle(std::uint64_t seed) noexcept {
    shuffled_ = true;
    random_ = rng(seed);
  }

 private:
  wait_list<ready_node> nodes_;
  bool shuffled_ = false;
  rng random_{0};
};

}  // namespace millrace
