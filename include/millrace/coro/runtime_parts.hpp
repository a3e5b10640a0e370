// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <millrace/coro/promise_base.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace {

class cpu_pool;
class slot_store;
namespace http {
struct engine_options;
}

/// What a runtime gives to the pipelines that run on it. Stages reach it through the executor that they run on:
///
///     runtime_parts* parts = co_await this_runtime();   // null on a bare loop: do without, by defaults
///
/// Concurrency: any thread of the runtime's loops. Lifetime: outlives every coroutine on those loops.
class runtime_parts {
 public:
  runtime_parts(const runtime_parts&) = delete;
  runtime_parts& operator=(const runtime_parts&) = delete;

  /// The loops in turn, the asking one among them: for run_on().
  virtual executor& next_loop() noexcept = 0;
  /// The pool for functions that compute; made at the first call. Throws what its constructor throws.
  virtual cpu_pool& pool() = 0;
  /// The slabs of that size, kept from one run to the next.
  virtual slab_pool slabs(std::size_t bytes) = 0;
  /// The memory on devices that runs leave to each other.
  virtual slot_store& device_slots() noexcept = 0;
  /// The limits of each loop's HTTP engine.
  virtual const http::engine_options& http() const noexcept = 0;
  /// Says one line, without its end, where the runtime's log goes.
  virtual void say(const char* line) noexcept = 0;

 protected:
  runtime_parts() noexcept = default;
  ~runtime_parts() = default;
};

namespace detail {
/// Says a line, without its end, in the log of the runtime; on standard error where there is none.
void say(const executor& ex, const std::string& line);
}  // namespace detail

/// `runtime_parts* parts = co_await this_runtime();` what the runtime gives; null where there is none: on a loop that
/// the program has made itself, on the loops of tests. Never suspends.
class this_runtime {
 public:
  this_runtime() noexcept = default;
  class awaiter {
   public:
    explicit awaiter(runtime_parts* parts) noexcept : parts_(parts) {}
    bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    runtime_parts* await_resume() const noexcept { return parts_; }

   private:
    runtime_parts* parts_;
  };
  awaiter awaited_by(promise_base& promise) const noexcept { return awaiter(promise.get_executor().runtime()); }
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/coro/impl/runtime_parts.ipp>
#endif
