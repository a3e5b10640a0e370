// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::detail {

/// Tells a waiting coroutine that a batch was released, on whatever thread that happened.
///
///     bell.muffle(); if (!look()) co_await bell.wait(pause);     // a ring after muffle() is never missed
///
/// One waiter at a time. Dropping the wait is safe while a ring is on its way: the message keeps its owner alive, and
/// is announced to the executor as an operation to drain.
class release_bell final : public remote_node {
 public:
  class awaiter final : public timer_node, private waiting_awaiter {
   public:
    awaiter(release_bell& bell, promise_base& promise, std::optional<duration> pause) noexcept
        : waiting_awaiter(promise), bell_(bell), pause_(pause) {}
    ~awaiter() override {
      home().remove_timer(*this);
      bell_.leave();
    }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle);
    void await_resume() const noexcept {}

   private:
    friend class release_bell;
    void fire() noexcept override { wake(); }

    release_bell& bell_;
    std::optional<duration> pause_;
  };
  class awaitable {
   public:
    awaitable(release_bell& bell, std::optional<duration> pause) noexcept : bell_(&bell), pause_(pause) {}
    awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(*bell_, promise, pause_); }

   private:
    release_bell* bell_;
    std::optional<duration> pause_;
  };

  /// Until the bell rings, or rang since muffle(), or `pause` is over.
  awaitable wait(std::optional<duration> pause) noexcept { return awaitable(*this, pause); }

  void muffle() noexcept {
    const std::lock_guard lock(mutex_);
    rang_ = false;
  }

  /// Any thread. `owner` keeps the bell alive until the message has arrived.
  void ring(std::shared_ptr<void> owner) noexcept;
  /// The same on the thread of the waiter's executor: it sends no message, so nothing has to be kept alive for one.
  void ring_here() noexcept;

 private:
  bool enter(awaiter& a, executor& ex) noexcept;
  void leave() noexcept;
  MILLRACE_INLINE void run() noexcept override;

  std::mutex mutex_;
  awaiter* waiter_ = nullptr;
  executor* executor_ = nullptr;
  std::shared_ptr<void> owner_;
  bool rang_ = false;
  bool posted_ = false;
  bool announced_ = false;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/detail/impl/release_bell.ipp>
#endif
