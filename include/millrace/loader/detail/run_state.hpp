// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/flow/run_budget.hpp>
#include <millrace/io/detail/remote_task.hpp>
#include <millrace/loader/detail/handover.hpp>
#include <millrace/loader/detail/progress_line.hpp>
#include <millrace/loader/detail/run_account.hpp>
#include <millrace/loader/run_options.hpp>
#include <millrace/loop/event_loop.hpp>

namespace millrace::detail {

/// The half of a run that is on a loop of the runtime, and what both halves share.
///
/// On the loop's thread: begin(), then end() when the pipeline is over, when the training thread has sent a stop, or
/// when the loop fails. end() destroys the pipeline, waits by messages for what other threads still do for it, and the
/// last message lets the training thread go. The loop keeps the state until that one has run, and with it every message
/// sent before.
template <class T>
class run_state {
 public:
  /// `spare`: what the budget leaves beyond the declared bounds, see check_budget().
  run_state(async_generator<T>&& pipeline, const run_options& o, std::size_t spare, std::uint32_t rank)
      : options(o),
        budget(spare),
        queue(o.prefetch < 1 ? 1 : o.prefetch, o.prefetch_bytes),
        pipeline_(std::move(pipeline)),
        rank_(rank) {
    account.recorder().set_budget(&budget);
  }

  // ---- the training thread's side

  static void start(const std::shared_ptr<run_state>& self, event_loop& loop) {
    self->self_ = self;
    self->loop_ = &loop;
    loop.post_remote(self->begin_);
  }
  /// The pipeline shall end; call once.
  void stop() noexcept { queue.send(stop_); }
  /// Until nothing of the pipeline is left on any thread.
  void wait() noexcept {
    std::unique_lock lock(mutex_);
    while (!over_) changed_.wait(lock);
  }

  const run_options options;
  run_budget budget;
  run_account account;
  handover<T> queue;

 private:
  class loop_watch final : public failure_listener {
   public:
    explicit loop_watch(run_state& s) noexcept : state_(s) {}
    void loop_failed(const std::exception_ptr& failure) noexcept override { state_.end(failure); }

   private:
    run_state& state_;
  };
  class home_watch final : public orphan_count::listener {
   public:
    explicit home_watch(run_state& s) noexcept : state_(s) {}
    void none_left() noexcept override { state_.leave_when_alone(); }

   private:
    run_state& state_;
  };

  void begin() noexcept {
    try {
      failure_listeners& listeners = loop_->service<failure_listeners>();
      if (listeners.failure()) std::rethrow_exception(listeners.failure());
      line_.emplace(*loop_, account, options.show, rank_);
      pump_ = spawned<void>(*loop_, fill(*this), account.sink());
      listeners.add(loop_watch_);
      queue.attach(loop_);
    } catch (...) {
      end(std::current_exception());
    }
  }

  static task<void> fill(run_state& self) {
    handover<T>& queue = self.queue;
    compactor<T> kept;
    try {
      for (;;) {
        while (!queue.reserve()) co_await queue.room().wait();
        std::optional<T> item = co_await self.pipeline_.next();
        if (!item) break;
        kept(*item);
        queue.push(std::move(*item));
      }
      queue.finish(nullptr);
    } catch (...) {
      queue.finish(std::current_exception());
    }
    // The items that wait are taken by the training thread; the pipeline stays until they are, since they may need it.
    while (!queue.drained()) co_await queue.room().wait();
    self.loop_->post_remote(self.filled_);  // a coroutine cannot end itself
  }

  void filled() noexcept { end(nullptr); }
  void stopped() noexcept { end(nullptr); }

  void end(std::exception_ptr failure) noexcept {
    if (ended_) return;
    ended_ = true;
    loop_watch_.unlink();
    queue.attach(nullptr);  // the training thread must not post any more
    queue.clear();          // before the pipeline: items may refer to what its stages own
    account.end();
    pump_ = spawned<void>();
    pipeline_ = async_generator<T>();
    line_.reset();
    if (failure) queue.finish(std::move(failure));
    leave_when_alone();
  }
  void leave_when_alone() noexcept {
    for (orphan_count* each : {account.recorder().orphans().get(), loop_->orphans().get()}) {
      if (!each->none()) return each->tell(home_watch_);
    }
    loop_->post_remote(leave_);  // behind all that the training thread and the pump have sent
  }
  void leave() noexcept {
    const std::shared_ptr<run_state> last = std::move(self_);
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_one();
  }

  std::shared_ptr<run_state> self_;  // the loop's, while a message may come
  event_loop* loop_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;

  // the loop's thread
  async_generator<T> pipeline_;
  const std::uint32_t rank_;
  std::optional<progress_line> line_;
  bool ended_ = false;
  loop_watch loop_watch_{*this};
  home_watch home_watch_{*this};
  message<run_state, &run_state::begin> begin_{*this};
  message<run_state, &run_state::filled> filled_{*this};
  message<run_state, &run_state::stopped> stop_{*this};
  message<run_state, &run_state::leave> leave_{*this};
  spawned<void> pump_;  // declared last: it refers to the rest
};

}  // namespace millrace::detail
