// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>

namespace millrace {

class stage_record;

/// A suspended coroutine's place in a run queue: lives inside the awaitable (in the coroutine's frame) and unlinks
/// itself when it is destroyed, so that dropping a queued coroutine needs no search and leaves nothing behind.
class ready_node {
 public:
  ready_node() noexcept = default;
  ready_node(const ready_node&) = delete;
  ready_node& operator=(const ready_node&) = delete;
  ~ready_node() { unlink(); }

  /// What is resumed when the node's turn comes, and on which stage's account.
  void set(std::coroutine_handle<> handle, stage_record* stage) noexcept {
    handle_ = handle;
    stage_ = stage;
  }

  bool linked() const noexcept { return next_ != nullptr; }

  void unlink() noexcept {
    if (next_ == nullptr) return;
    prev_->next_ = next_;
    next_->prev_ = prev_;
    prev_ = next_ = nullptr;
  }

 private:
  friend class run_queue;
  friend class executor;

  ready_node* prev_ = nullptr;
  ready_node* next_ = nullptr;
  std::coroutine_handle<> handle_;
  stage_record* stage_ = nullptr;
};

}  // namespace millrace
