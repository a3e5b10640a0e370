// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>
#include <cstdint>

#include <millrace/base/rng.hpp>
#include <millrace/base/wait_list.hpp>

namespace millrace {

class stage_record;

/// A suspended coroutine's place in a run queue: lives inside the awaitable, in the coroutine's frame.
class ready_node : public waiter {
 public:
  /// What is resumed when the node's turn comes, and on which stage's account.
  void set(std::coroutine_handle<> handle, stage_record* stage) noexcept {
    handle_ = handle;
    stage_ = stage;
  }

 private:
  friend class executor;

  std::coroutine_handle<> handle_;
  stage_record* stage_ = nullptr;
};

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
