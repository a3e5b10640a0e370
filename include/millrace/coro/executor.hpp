// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/detail/own_process.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/type_id.hpp>
#include <millrace/base/wait_list.hpp>
#include <millrace/coro/metrics_clock.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/stage_record.hpp>

namespace millrace::inline MILLRACE_ABI {

class stage_record;

/// A suspended coroutine's place in a run queue: lives inside the awaitable, in the coroutine's frame.
class ready_node : public waiter {
 public:
  /// Sets the coroutine that is resumed when the node is popped, and the stage that its time is charged to.
  void set(std::coroutine_handle<> handle, stage_record* stage) noexcept {
    handle_ = handle;
    stage_ = stage;
  }

 private:
  friend class executor;

  std::coroutine_handle<> handle_;
  stage_record* stage_ = nullptr;
};

/// First-in first-out list of coroutines that are ready to run. Allocates nothing. One thread.
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

/// Something that happens at a time. Derive from it or hold one; fire() runs on the executor's thread between
/// coroutines, and may add timers and post coroutines but never resumes one.
class timer_node {
 public:
  timer_node() noexcept = default;
  timer_node(const timer_node&) = delete;
  timer_node& operator=(const timer_node&) = delete;

  bool armed() const noexcept { return armed_; }

 protected:
  virtual ~timer_node() { MILLRACE_ASSERT(!armed(), "a timer was destroyed while it was armed"); }
  virtual void fire() noexcept = 0;

 private:
  friend class timer_queue;
  timer_node* child_ = nullptr;   // the first of those below it
  timer_node* next_ = nullptr;    // below the same one
  timer_node* before_ = nullptr;  // likewise, or, of the first child, the one above
  bool armed_ = false;
  time_point due_{};
  std::uint64_t order_ = 0;
};

/// Timers by their times; equal times fire in the order of arming. A pairing heap, whose links are in the timers: it
/// allocates nothing, so that a timer can be armed where nothing may be thrown, and clean-up never lacks one. O(1) to
/// arm, O(log n) in the mean to remove. One thread.
class timer_queue {
 public:
  timer_queue() noexcept = default;
  timer_queue(const timer_queue&) = delete;
  timer_queue& operator=(const timer_queue&) = delete;
  ~timer_queue() {
    while (!empty()) remove(*first_);
  }

  bool empty() const noexcept { return first_ == nullptr; }
  std::size_t size() const noexcept { return size_; }
  time_point next() const noexcept { return first_->due_; }

  /// Arms `node` (moves it when it is armed already). It must be removed before it is destroyed.
  void add(timer_node& node, time_point due) noexcept;

  void remove(timer_node& node) noexcept;

  /// Fires everything due at `now` that was armed before the call; returns how many fired.
  std::size_t fire_due(time_point now) noexcept;

 private:
  static bool before(const timer_node& a, const timer_node& b) noexcept {
    return a.due_ != b.due_ ? a.due_ < b.due_ : a.order_ < b.order_;
  }
  /// The first of two that are above all others of theirs; the other one is below it then. Null: none.
  static timer_node* joined(timer_node* a, timer_node* b) noexcept;
  /// Joins all in a row of siblings.
  static timer_node* joined(timer_node* siblings) noexcept;

  timer_node* first_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t armed_ = 0;
  time_point fired_{};  // when fire_due() was last called
};

class event_loop;

/// A message to an executor from another thread. run() is called once on the executor's thread, between coroutines; it
/// may post coroutines and must not resume one. The node belongs to its sender until post_remote() and to the
/// executor's thread from the start of run().
class remote_node {
 public:
  remote_node() noexcept = default;
  remote_node(const remote_node&) = delete;
  remote_node& operator=(const remote_node&) = delete;

 protected:
  virtual ~remote_node() = default;
  virtual void run() noexcept = 0;

 private:
  friend class executor;
  remote_node* next_ = nullptr;
};

/// Something that lives as long as an executor and belongs to it, one of a kind: the HTTP engine of a loop, its root
/// scope. Made by executor::service() on first use.
class executor_service {
 public:
  virtual ~executor_service() = default;
  /// Called when the executor has nothing left to wait for. True if the service has work in progress: it then counts
  /// as background_started() until it has ended that work or given it up, soon.
  virtual bool linger() noexcept { return false; }
};

namespace detail {

/// The parts of a loop that belongs to no runtime.
class loop_parts final : public runtime_parts {
 public:
  explicit loop_parts(executor& ex) noexcept : executor_(ex) {}
  executor& next_loop() noexcept override { return executor_; }
  /// The loop's, from one pipeline on it to the next.
  MILLRACE_INLINE slab_pool slabs(std::size_t bytes) override;

 private:
  executor& executor_;
};

}  // namespace detail

/// Runs coroutines on one thread: a run queue, timers, an inbox for other threads, and a waiting part of the derived
/// class (a kernel ring, an epoll set, a virtual clock).
///
/// Everything is for the executor's own thread except post_remote(). Coroutines bound to an executor must be destroyed
/// before it and on its thread. Nothing here is global: executors are independent.
class executor {
 public:
  /// How many coroutines may complete one into another before the next one goes through the queue, so that data that
  /// is always ready cannot starve timers and I/O.
  static constexpr int inline_budget = 128;

  executor() = default;
  executor(const executor&) = delete;
  executor& operator=(const executor&) = delete;
  virtual ~executor() { MILLRACE_ASSERT(frames_ == 0, "an executor was destroyed before its coroutines"); }

  // ---- scheduling, on the executor's thread

  /// Queues a suspended coroutine.
  void post(ready_node& node) noexcept { ready_.push(node); }

  /// The trampoline: resumes `handle` as soon as the coroutine that runs now suspends. Symmetric transfer without
  /// relying on tail calls, which g++ gives at -O2 only and never under its sanitizers.
  void transfer(std::coroutine_handle<> handle, stage_record* stage) noexcept {
    next_ = handle;
    next_stage_ = stage;
  }

  /// Another budget than `inline_budget` from the next turn on: 1 and less send every hop through the queue.
  void set_inline_budget(int hops) noexcept { full_budget_ = hops < 1 ? 1 : hops; }

  /// Takes one step of the inline budget; false when it is used up and the caller should go through the queue.
  bool spend_inline() noexcept {
    if (MILLRACE_LIKELY(--budget_ != 0)) return true;
    budget_ = 1;  // used up until the next turn
    return false;
  }

  // ---- the stages' metrics

  /// Charges `stage` from now on. Returns the stage that was charged before.
  stage_record* enter(stage_record* stage) noexcept {
    stage_record* const before = current_;
    if (stage != before) {
      charge_current();
      current_ = stage;
    }
    return before;
  }
  /// Charges the stage that runs for the time until now. Returns the time of the metrics, nanoseconds.
  std::int64_t charge_current() noexcept {
    if (!clock_.stopped()) charge(clock_.read(now_ns()));
    return clock_.now_ns();
  }
  /// The time of the metrics at the last switch, without reading the clock.
  std::int64_t charged_ns() const noexcept { return clock_.now_ns(); }
  /// True if no time is charged before this turn ends.
  bool clock_stopped() const noexcept { return clock_.stopped(); }

  /// How exactly time is measured: one turn in `turns` (see metrics_clock); with 1, every switch.
  void sample_metrics(unsigned turns) noexcept { clock_.sample(turns); }

  /// This as an event loop, or null; needs no run-time type information.
  virtual event_loop* as_event_loop() noexcept { return nullptr; }

  /// The parts that the runtime of this loop shares between its runs; defaults for a loop without a runtime.
  runtime_parts& runtime() const noexcept { return *runtime_; }
  /// Before anything runs here. `parts` outlives all coroutines of the loop.
  void set_runtime(runtime_parts& parts) noexcept { runtime_ = &parts; }

  /// The context of coroutines that belong to no run.
  run_context& own_run() noexcept { return own_run_; }

  // ---- time

  virtual std::int64_t now_ns() const noexcept { return monotonic_ns(); }
  time_point now() const noexcept { return time_point(duration(now_ns())); }
  void add_timer(timer_node& timer, time_point due) noexcept { timers_.add(timer, due); }
  void remove_timer(timer_node& timer) noexcept { timers_.remove(timer); }

  // ---- other threads

  /// The process that made it: a child of fork() cannot use its copy.
  const detail::own_process& process() const noexcept { return process_; }

  /// Thread-safe: runs node.run() on the executor's thread soon. The executor must stay alive until then: senders are
  /// announced by operation_started() before.
  void post_remote(remote_node& node) noexcept;

  /// Announces an operation that outlives its awaitable and that another thread or the kernel will end (a pool job, a
  /// file read): drain() waits for it.
  void operation_started() noexcept { ++operations_; }
  void operation_finished() noexcept { --operations_; }

  /// Like task_started() and task_finished(), for coroutines that clean up in the background (see root_scope).
  void background_started() noexcept { ++background_; }
  void background_finished() noexcept { --background_; }

  // ---- running

  /// Turns until `done()`, which is asked after the coroutines of each turn and before the kernel is waited for. One
  /// turn: inbox, timers, the coroutines that were ready, then the kernel (blocking only when nothing is ready).
  template <class Done>
  void run_until(Done&& done) {
    process_.check("an event loop");
    if (resuming_) detail::misused("an executor was run inside one of its coroutines: co_await there, no block_on()");
    while (!done()) {
      run_inbox();
      if (!timers_.empty()) timers_.fire_due(now());
      run_ready();
      if (done()) return;
      std::optional<time_point> deadline;
      if (!timers_.empty()) deadline = timers_.next();
      poll(ready_.empty(), deadline);
    }
  }

  /// Turns until every operation that outlived its awaitable, and every background clean-up, has ended.
  void drain();

  // ---- census: counts that must return to zero

  std::size_t frames() const noexcept { return frames_; }
  std::size_t operations() const noexcept { return operations_; }
  std::size_t background() const noexcept { return background_; }
  std::size_t timers() const noexcept { return timers_.size(); }
  void frame_bound() noexcept { ++frames_; }
  void frame_destroyed() noexcept { --frames_; }

  /// The executor's service of type `Service`, made from `arguments` on first use. Services are destroyed in the
  /// reverse order of their construction, before the executor.
  template <class Service, class... Arguments>
  Service& service(Arguments&&... arguments) {
    if (Service* existing = find_service<Service>()) return *existing;
    Service* const made = new Service(std::forward<Arguments>(arguments)...);
    keep(type_id::of<Service>(), std::unique_ptr<executor_service>(made));  // after those that it uses
    return *made;
  }

  /// Like service(), but null if there is none yet.
  template <class Service>
  Service* find_service() noexcept {
    for (held_service& s : services_) {
      if (s.key == type_id::of<Service>()) return static_cast<Service*>(s.service.get());
    }
    return nullptr;
  }

 protected:
  /// Waits for the kernel: until something happened or `deadline` when `block`, without waiting otherwise.
  virtual void poll(bool block, std::optional<time_point> deadline) = 0;
  /// Makes a blocked poll() return. Thread-safe. Called after the inbox was locked, with a message put into it.
  virtual void wake() noexcept = 0;

  bool inbox_empty() {
    std::lock_guard lock(inbox_mutex_);
    return inbox_head_ == nullptr;
  }
  /// How often this thread has been preempted.
  MILLRACE_INLINE virtual std::int64_t preemptions() const noexcept;
  bool ready_empty() const noexcept { return ready_.empty(); }
  run_queue& ready_queue() noexcept { return ready_; }

  /// For destructors of derived classes, while the kernel side still works: ends services and waits for operations.
  void shut_down() noexcept;

  /// Sleeps on the thread itself, for where the kernel side cannot be waited for.
  static void nap(long ns) noexcept;

 private:
  struct held_service {
    type_id key;
    std::unique_ptr<executor_service> service;
  };
  void keep(type_id key, std::unique_ptr<executor_service> made) {
    services_.push_back(held_service{key, std::move(made)});
  }

  // drain() that catches exceptions of poll(): a kernel side that has failed, a deadlock of a test's loop. Messages
  // still come in, so work on other threads ends.
  void drain_or_give_up() noexcept;

  bool services_linger() noexcept;

  void run_inbox();

  // Code of every hop is here, and not in the .ipp: it is inlined in both modes.

  void run_ready() {
    // Nodes queued from now on wait for the next turn: the mark bounds the turn.
    if (ready_.empty()) return;
    ready_.push(turn_mark_);
    while (!ready_.empty()) {
      ready_node& node = ready_.pop();
      if (&node == &turn_mark_) break;
      resume(node.handle_, node.stage_);
    }
  }

  void resume(std::coroutine_handle<> handle, stage_record* stage) {
    budget_ = full_budget_;
    resuming_ = true;
    stage_record* const first = stage;
    if (first != nullptr) begin_turn(first);
    while (handle) {
      enter(stage);
      handle.resume();
      handle = std::exchange(next_, nullptr);
      stage = next_stage_;
    }
    resuming_ = false;
    if (first != nullptr) {
      end_turn(first);
    } else {
      enter(nullptr);
    }
  }
  void charge(std::int64_t ns) noexcept {
    if (current_ != nullptr) stage_record::add(current_->busy_ns, ns);
  }
  void begin_turn(stage_record* stage) noexcept {
    clock_.begin_turn(now_ns(), [this] { return preemptions(); });
    current_ = stage;
  }
  void end_turn(stage_record* first) noexcept {
    const std::int64_t t = now_ns();
    if (!clock_.stopped()) charge(clock_.read(t));
    stage_record::add(first->busy_ns, clock_.end_turn(t, [this] { return preemptions(); }));
    current_ = nullptr;
  }

  const detail::own_process process_;
  // the executor's thread
  run_queue ready_;
  ready_node turn_mark_;
  timer_queue timers_;
  std::coroutine_handle<> next_;
  stage_record* next_stage_ = nullptr;
  stage_record* current_ = nullptr;
  metrics_clock clock_;
  int full_budget_ = inline_budget;
  int budget_ = inline_budget;
  bool resuming_ = false;
  std::size_t frames_ = 0;
  std::size_t operations_ = 0;
  std::size_t background_ = 0;
  std::vector<held_service> services_;
  detail::loop_parts own_parts_{*this};
  runtime_parts* runtime_ = &own_parts_;
  run_context own_run_;

  // any thread, the list under the mutex
  std::atomic<unsigned> senders_{0};
  std::mutex inbox_mutex_;
  remote_node* inbox_head_ = nullptr;
  remote_node* inbox_tail_ = nullptr;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/coro/executor.ipp>
#endif
