// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <coroutine>

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

}  // namespace millrace
