// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>

namespace millrace {

MILLRACE_INLINE void executor::post_remote(remote_node& node) noexcept {
  senders_.fetch_add(1, std::memory_order_relaxed);  // shut_down() waits for those that are in here
  bool was_empty;
  {
    std::lock_guard lock(inbox_mutex_);
    node.next_ = nullptr;
    was_empty = inbox_head_ == nullptr;
    (was_empty ? inbox_head_ : inbox_tail_->next_) = &node;
    inbox_tail_ = &node;
  }
  // Not under the lock: the executor's thread often wakes up on this very core, and would have to wait for it.
  if (was_empty) wake();
  senders_.fetch_sub(1, std::memory_order_release);
}

MILLRACE_INLINE void executor::drain() {
  do {
    run_until([this] { return operations_ == 0 && background_ == 0; });
  } while (services_linger());
}

MILLRACE_INLINE std::int64_t executor::preemptions() const noexcept {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nivcsw;
}

MILLRACE_INLINE void executor::shut_down() noexcept {
  drain_or_give_up();
  while (!services_.empty()) {
    std::unique_ptr<executor_service> last = std::move(services_.back().service);
    services_.pop_back();  // first: what ends may ask for services, and for clean-up by those that are left
    last.reset();
    drain_or_give_up();
  }
  run_inbox();  // what nobody had announced
  // Senders whose messages have run may still be in wake().
  while (senders_.load(std::memory_order_acquire) != 0) nap(20'000);
}

MILLRACE_INLINE void executor::nap(long ns) noexcept {
  const timespec moment{0, ns};
  ::nanosleep(&moment, nullptr);
}

MILLRACE_INLINE void executor::drain_or_give_up() noexcept {
  constexpr std::int64_t longest = 30'000'000'000;
  for (const std::int64_t begun = monotonic_ns(); monotonic_ns() - begun < longest;) {
    try {
      drain();
      return;
    } catch (...) {
      if (operations_ == 0) return;  // clean-up that waits for what does not come: it goes with its service
    }
    nap(1'000'000);
  }
  MILLRACE_ASSERT(operations_ == 0, "an executor was destroyed, and what another thread does for it does not end");
}

MILLRACE_INLINE bool executor::services_linger() noexcept {
  bool any = false;
  for (held_service& s : services_) any = s.service->linger() || any;
  return any;
}

MILLRACE_INLINE void executor::run_inbox() {
  remote_node* node;
  {
    std::lock_guard lock(inbox_mutex_);
    node = std::exchange(inbox_head_, nullptr);
  }
  while (node != nullptr) {
    remote_node* const following = node->next_;  // run() may free the node
    node->run();
    node = following;
  }
}

}  // namespace millrace
