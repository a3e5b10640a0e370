// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <millrace/base/aimd_limit.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/wait_list.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::detail {

/// Holds requests back while the store asks for fewer: an aimd_limit on how many are under way, first in, first out.
/// For the coroutines of one executor. Must outlive its waiters and passes.
///
///     request_gate::pass turn = co_await gate.enter();
///     ...                                               // one request and its answer
///     turn.succeeded();                                 // or refused()
///
/// Costs a comparison and a counter for each request that need not wait. A coroutine that is dropped while it waits, or
/// before it has run with its pass, leaves its turn to the next.
class request_gate {
 public:
  request_gate() = default;
  request_gate(const request_gate&) = delete;
  request_gate& operator=(const request_gate&) = delete;

  /// One request under way, until it is destroyed. An empty one is for a request without a gate.
  class pass {
   public:
    pass() noexcept = default;
    pass(pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)), generation_(other.generation_) {}
    pass& operator=(pass&& other) noexcept {
      std::swap(gate_, other.gate_);
      std::swap(generation_, other.generation_);
      return *this;
    }
    ~pass() {
      if (gate_ != nullptr) gate_->leave();
    }
    /// The store asked for fewer requests.
    void refused() noexcept {
      if (gate_ == nullptr) return;
      ++gate_->refusals_;
      gate_->limit_.refused(generation_, gate_->under_way_);
    }
    void succeeded() noexcept {
      if (gate_ != nullptr) gate_->limit_.succeeded();
    }

   private:
    friend class request_gate;
    explicit pass(request_gate& g) noexcept : gate_(&g), generation_(g.limit_.generation()) {}
    request_gate* gate_ = nullptr;
    std::uint64_t generation_ = 0;
  };

  class awaiter : public waiter, private waiting_awaiter {
   public:
    awaiter(request_gate& g, promise_base& promise) noexcept : waiting_awaiter(promise), gate_(g) {}
    ~awaiter() {
      if (granted_) gate_.leave();
    }
    bool await_ready() noexcept {
      if (!gate_.waiters_.empty() || gate_.under_way_ >= gate_.limit()) return false;
      grant();
      return true;
    }
    void await_suspend(std::coroutine_handle<> handle) noexcept {
      suspend(handle);
      gate_.waiters_.push(*this);
    }
    pass await_resume() noexcept {
      granted_ = false;
      return pass(gate_);
    }

   private:
    friend class request_gate;
    void grant() noexcept {
      ++gate_.under_way_;
      granted_ = true;
    }
    request_gate& gate_;
    bool granted_ = false;
  };
  using awaitable = awaitable_of<awaiter, request_gate>;

  /// Awaitable for a pass.
  awaitable enter() noexcept { return awaitable(*this); }

  std::size_t limit() const noexcept { return limit_.limit(); }
  std::size_t under_way() const noexcept { return under_way_; }
  /// How often the store asked for fewer requests.
  std::uint64_t refusals() const noexcept { return refusals_; }
  /// Nothing is in flight, waiting or limited: a new gate would be equal.
  bool idle() const noexcept { return under_way_ == 0 && waiters_.empty() && limit() == aimd_limit::none; }

 private:
  void leave() noexcept;

  aimd_limit limit_;
  std::size_t under_way_ = 0;
  std::uint64_t refusals_ = 0;
  wait_list<awaiter> waiters_;
};

/// The gates of one executor, by name. Each loop of a group learns from its own refusals.
class request_gates final : public executor_service {
 public:
  static request_gates& of(executor& ex) {
    return ex.service<request_gates>();
  }

  /// Valid while something of it is in use, and until the next call otherwise: idle ones are forgotten.
  request_gate& gate(const std::string& name);

  std::size_t size() const noexcept { return gates_.size(); }

 private:
  std::map<std::string, request_gate> gates_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/request_rate.ipp>
#endif
