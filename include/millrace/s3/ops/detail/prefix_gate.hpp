// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <millrace/base/wait_list.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/retry/aimd_limit.hpp>

namespace millrace::s3::detail {

/// Lets as many requests through as its limit allows, first in, first out; for the coroutines of one executor. Must
/// outlive its waiters and passes.
class prefix_gate {
 public:
  prefix_gate() = default;
  prefix_gate(const prefix_gate&) = delete;
  prefix_gate& operator=(const prefix_gate&) = delete;

  /// One request under way, until it is dropped.
  class pass {
   public:
    pass(pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)), generation_(other.generation_) {}
    pass& operator=(pass&&) = delete;
    ~pass() {
      if (gate_ != nullptr) gate_->leave();
    }
    /// The store asked for fewer requests.
    void refused() noexcept {
      ++gate_->refusals_;
      gate_->limit_.refused(generation_, gate_->under_way_);
    }
    void succeeded() noexcept { gate_->limit_.succeeded(); }

   private:
    friend class prefix_gate;
    explicit pass(prefix_gate& g) noexcept : gate_(&g), generation_(g.limit_.generation()) {}
    prefix_gate* gate_;
    std::uint64_t generation_;
  };

  class awaiter : public waiter, private millrace::detail::waiting_awaiter {
   public:
    awaiter(prefix_gate& g, promise_base& promise) noexcept : waiting_awaiter(promise), gate_(g) {}
    ~awaiter() {
      if (granted_) gate_.leave();
    }
    bool await_ready() noexcept;
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      suspend(handle);
      gate_.waiters_.push(*this);
    }
    pass await_resume() noexcept {
      granted_ = false;
      return pass(gate_);
    }

   private:
    friend class prefix_gate;
    void grant() noexcept {
      ++gate_.under_way_;
      granted_ = true;
    }
    prefix_gate& gate_;
    bool granted_ = false;
  };
  using awaitable = millrace::detail::awaitable_of<awaiter, prefix_gate>;

  awaitable enter() noexcept { return awaitable(*this); }

  std::size_t limit() const noexcept { return limit_.limit(); }
  std::size_t under_way() const noexcept { return under_way_; }
  /// How often the store asked for fewer requests.
  std::uint64_t refusals() const noexcept { return refusals_; }
  /// Nothing is under way, waits or is limited: a new one would be the same.
  bool idle() const noexcept { return under_way_ == 0 && waiters_.empty() && limit() == aimd_limit::none; }

 private:
  void leave() noexcept;

  aimd_limit limit_;
  std::size_t under_way_ = 0;
  std::uint64_t refusals_ = 0;
  wait_list<awaiter> waiters_;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/detail/impl/prefix_gate.ipp>
#endif
