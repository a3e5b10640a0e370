// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <millrace/base/callback.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/log.hpp>
#include <millrace/base/wait_list.hpp>

/// Stages decide by the context of their run (memory budget, abandoned work, whether the consumer waits) and by the
/// parts that the runtime shares between runs (loops, pool, slabs, log). Both are always there; a loop that belongs to
/// no runtime has defaults. A stage gets them with its executor:
///
///     const coroutine_context here = co_await this_context();
///     const std::size_t largest = here.run().budget().largest_item();
///     slab_pool slabs = here.runtime().slabs(1 * MiB);

namespace millrace::inline MILLRACE_ABI {

class cpu_pool;
class executor;
class slab_pool;
class skipped_item;
class slot_store;
namespace http {
struct engine_options;
namespace detail {
class addresses;
}
}  // namespace http
struct profiler_ranges;
namespace detail {
class runtime_counts;
class tracer;
class store_hosts;
}

/// The part of a run's memory budget beyond the bounds that its stages have declared, for stages that learn from the
/// data that they need more. First come, first served; take() never waits.
///
/// Concurrency: any thread. Lifetime: that of the run, longer than its stages.
class run_budget {
 public:
  static constexpr std::size_t unlimited = SIZE_MAX;  ///< left by a run without a budget

  /// `left`: bytes to take from. `whole`: bytes of the budget, declared bounds included.
  explicit run_budget(std::size_t left = unlimited, std::size_t whole = unlimited) noexcept
      : whole_(whole), left_(left) {}
  run_budget(const run_budget&) = delete;
  run_budget& operator=(const run_budget&) = delete;

  /// The bytes of the whole budget, declared bounds included: no single item may be larger. `unlimited` if the run has
  /// no budget.
  std::size_t largest_item() const noexcept { return whole_; }
  /// The error text for a larger item. `whose`: "the member's", "the sample's".
  static std::string too_large(const char* whose, std::uint64_t bytes, std::size_t budget) {
    return std::string(whose) + ' ' + std::to_string(bytes) + " bytes are more than the " + std::to_string(budget) +
           " of the run's memory budget";
  }

  /// Takes `n` bytes. Returns false, and takes nothing, if fewer are left.
  bool take(std::size_t n) noexcept {
    std::size_t left = left_.load(std::memory_order_relaxed);
    do {
      if (left == unlimited) return true;
      if (left < n) return false;
    } while (!left_.compare_exchange_weak(left, left - n, std::memory_order_relaxed));
    return true;
  }
  /// Takes half of the rest, at most `most` bytes, and returns the number taken. The other half is for the next caller.
  std::size_t take_half(std::size_t most) noexcept {
    std::size_t left = left_.load(std::memory_order_relaxed);
    std::size_t taken;
    do {
      if (left == unlimited) return most;
      taken = left / 2 < most ? left / 2 : most;
    } while (!left_.compare_exchange_weak(left, left - taken, std::memory_order_relaxed));
    return taken;
  }
  /// Returns `n` bytes that were taken.
  void give_back(std::size_t n) noexcept {
    if (left_.load(std::memory_order_relaxed) != unlimited) left_.fetch_add(n, std::memory_order_relaxed);
  }

 private:
  const std::size_t whole_;
  std::atomic<std::size_t> left_;
};

namespace detail {

/// Counts operations in progress, and notifies listeners when the last one has ended. One thread.
class wait_group {
 public:
  class listener : public waiter {
   public:
    virtual void all_done() noexcept = 0;

   protected:
    ~listener() = default;
  };

  bool empty() const noexcept { return count_ == 0; }
  void add() noexcept { ++count_; }
  void done() noexcept {
    if (--count_ > 0) return;
    while (count_ == 0 && !listeners_.empty()) listeners_.pop().all_done();
  }
  /// Calls l.all_done() once, when the group next becomes empty. Destroying `l` removes it.
  void notify_when_empty(listener& l) noexcept { listeners_.push(l); }

 private:
  std::size_t count_ = 0;
  wait_list<listener> listeners_;
};

}  // namespace detail

/// State that the coroutines of one run share and decide by. run() makes one for each run; the coroutines of a loop
/// that belong to no run share the loop's own (executor::own_run()), which has no memory budget and a consumer that
/// waits.
///
/// Concurrency: abandoned() is for the thread of the run's loop, the rest for any thread. Lifetime: longer than the
/// run's coroutines; abandoned() may be shared beyond it.
class run_context {
 public:
  /// `budget_left`, `budget_whole`: see run_budget.
  explicit run_context(std::size_t budget_left = run_budget::unlimited,
                       std::size_t budget_whole = run_budget::unlimited)
      : budget_(budget_left, budget_whole) {}
  run_context(const run_context&) = delete;
  run_context& operator=(const run_context&) = delete;

  run_budget& budget() noexcept { return budget_; }

  /// Operations that dropped coroutines of the run had started and that still run on other threads: functions on a
  /// pool, tasks on other loops. They may use objects that the program has lent to the pipeline, so the end of a run
  /// waits for them.
  const std::shared_ptr<detail::wait_group>& abandoned() const noexcept { return abandoned_; }

  /// Since when the run's consumer has been waiting for an item, in nanoseconds of monotonic_ns(): `not_waiting` while
  /// it does not, 0 if the consumer is a coroutine, of which that is not known.
  std::int64_t consumer_waits_since() const noexcept { return consumer_waits_since_.load(std::memory_order_relaxed); }
  void set_consumer_waits_since(std::int64_t ns) noexcept {
    consumer_waits_since_.store(ns, std::memory_order_relaxed);
  }
  static constexpr std::int64_t not_waiting = INT64_MAX;

  /// Counts a part of an object that was read again because it had come damaged. Returns how many there are now.
  std::int64_t add_second_reading() noexcept { return second_readings_.fetch_add(1, std::memory_order_relaxed) + 1; }

  /// Called for each item that a failure_policy leaves out: run_options::skipped. Before the run begins.
  void tell_skipped(callback<void(const skipped_item& item)> listener) noexcept { skipped_ = listener; }
  bool tells_skipped() const noexcept { return skipped_ != nullptr; }
  void skipped(const skipped_item& item) const { skipped_(item); }

 private:
  run_budget budget_;
  const std::shared_ptr<detail::wait_group> abandoned_{new detail::wait_group};
  std::atomic<std::int64_t> consumer_waits_since_{0};
  std::atomic<std::int64_t> second_readings_{0};
  callback<void(const skipped_item& item)> skipped_;
};

/// Parts that a runtime shares between its runs: executor::runtime(). The defaults are those of a loop that belongs to
/// no runtime.
///
/// Concurrency: any thread of the runtime's loops. Lifetime: outlives every coroutine on those loops.
class runtime_parts {
 public:
  runtime_parts(const runtime_parts&) = delete;
  runtime_parts& operator=(const runtime_parts&) = delete;

  /// The loops in turn, the calling one among them: for run_on().
  virtual executor& next_loop() noexcept = 0;
  /// How many loops there are.
  virtual std::size_t loops() const noexcept { return 1; }
  /// The pool for functions that compute, made at the first call; null if there is none: see cpu_pool::share::of().
  /// Throws the exceptions of the pool's constructor.
  virtual cpu_pool* pool() { return nullptr; }
  /// How many threads the pool may have that each find a core; 0 if that is not known.
  virtual unsigned cores() const noexcept { return 0; }
  /// The slabs of `bytes` bytes each, which a runtime keeps from one run to the next.
  MILLRACE_INLINE virtual slab_pool slabs(std::size_t bytes);
  /// Memory on devices that runs leave to each other; null: each loop keeps its own.
  virtual slot_store* device_slots() noexcept { return nullptr; }
  /// The limits of each loop's HTTP engine; null: the engine's defaults.
  virtual const http::engine_options* http() const noexcept { return nullptr; }
  /// The known addresses of servers; null: each loop learns for itself.
  virtual http::detail::addresses* addresses() noexcept { return nullptr; }
  /// The measurements of the stores' hosts, which their readers share; null: each reader learns for itself.
  virtual detail::store_hosts* hosts() noexcept { return nullptr; }
  /// Counts of requests and samples, of all runs together; null: nothing is counted.
  virtual detail::runtime_counts* counts() noexcept { return nullptr; }
  /// Receives the spans of a traced run; null if none is traced.
  virtual detail::tracer* trace() noexcept { return nullptr; }
  /// The ranges of runtime_options; null: none.
  virtual const profiler_ranges* ranges() const noexcept { return nullptr; }
  /// True if follow_device() has an effect: asking a device for its address may cost a call of its driver.
  virtual bool follows_devices() const noexcept { return false; }
  /// The pipeline's batches go to this device, given by its address on the PCI bus: the loops and the pool may be moved
  /// to its NUMA node. For a stage that begins, before it makes use of the pool.
  virtual void follow_device(const std::string& /*pci_address*/) {}
  /// Logs one line.
  MILLRACE_INLINE virtual void log(const log_record& record) noexcept;

 protected:
  runtime_parts() noexcept = default;
  ~runtime_parts() = default;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/coro/run_context.ipp>
#endif
