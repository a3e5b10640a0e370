// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The slabs of a loop that belongs to no runtime: their pages are touched once.
class kept_slabs final : public executor_service {
 public:
  std::vector<slab_pool> pools;
};

MILLRACE_INLINE slab_pool loop_parts::slabs(std::size_t bytes) {
  std::vector<slab_pool>& pools = executor_.service<kept_slabs>().pools;
  for (const slab_pool& each : pools) {
    if (each.slab_bytes() == bytes) return each;
  }
  return pools.emplace_back(bytes);
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void timer_queue::add(timer_node& node, time_point due) noexcept {
  remove(node);
  node.due_ = due < fired_ ? fired_ : due;  // one that is late already must not overtake those that were late before it
  node.order_ = ++armed_;
  node.armed_ = true;
  ++size_;
  first_ = joined(first_, &node);
}

MILLRACE_INLINE void timer_queue::remove(timer_node& node) noexcept {
  if (!node.armed_) return;
  node.armed_ = false;
  --size_;
  timer_node* const below = joined(std::exchange(node.child_, nullptr));
  if (&node == first_) {
    first_ = below;
    return;
  }
  (node.before_->child_ == &node ? node.before_->child_ : node.before_->next_) = node.next_;
  if (node.next_ != nullptr) node.next_->before_ = node.before_;
  node.next_ = node.before_ = nullptr;
  first_ = joined(first_, below);
}

MILLRACE_INLINE std::size_t timer_queue::fire_due(time_point now) noexcept {
  fired_ = now;
  const std::uint64_t limit = armed_;
  std::size_t fired = 0;
  while (first_ != nullptr && first_->due_ <= now && first_->order_ <= limit) {
    timer_node& node = *first_;
    remove(node);
    node.fire();
    ++fired;
  }
  return fired;
}

MILLRACE_INLINE timer_node* timer_queue::joined(timer_node* a, timer_node* b) noexcept {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  if (before(*b, *a)) std::swap(a, b);
  b->before_ = a;
  b->next_ = a->child_;
  if (a->child_ != nullptr) a->child_->before_ = b;
  a->child_ = b;
  return a;
}

MILLRACE_INLINE timer_node* timer_queue::joined(timer_node* siblings) noexcept {
  timer_node* pairs = nullptr;  // the last one first
  while (siblings != nullptr) {
    timer_node* const one = siblings;
    timer_node* const other = one->next_;
    siblings = other == nullptr ? nullptr : other->next_;
    one->next_ = one->before_ = nullptr;
    if (other != nullptr) other->next_ = other->before_ = nullptr;
    timer_node* const pair = joined(one, other);
    pair->next_ = pairs;
    pairs = pair;
  }
  timer_node* all = nullptr;
  while (pairs != nullptr) {
    timer_node* const pair = pairs;
    pairs = std::exchange(pair->next_, nullptr);
    all = joined(all, pair);
  }
  return all;
}

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
  if (!process_.here()) {
    // They hold connections and descriptors of the parent, which a protocol's goodbye would end there, too.
    for (held_service& s : services_) static_cast<void>(s.service.release());
    services_.clear();
    return;
  }
  drain_or_give_up();
  while (!services_.empty()) {
    std::unique_ptr<executor_service> last = std::move(services_.back().service);
    services_.pop_back();  // first: a destructor may ask for services, and leave clean-up to those that remain
    last.reset();
    drain_or_give_up();
  }
  run_inbox();  // messages whose senders were not announced
  // Senders whose messages have been run may still be in wake().
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
      if (operations_ == 0) return;  // clean-up that would wait for ever: it is destroyed with its service
    }
    nap(1'000'000);
  }
  MILLRACE_ASSERT(operations_ == 0, "an executor was destroyed, and an operation on another thread does not end");
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
