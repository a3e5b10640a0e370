// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/started.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/flow/detail/window.hpp>
#include <millrace/http/engine_defaults.hpp>
#include <millrace/io/loop_group.hpp>
#include <millrace/loader/budget.hpp>
#include <millrace/loader/detail/explain_run.hpp>
#include <millrace/loader/detail/handover.hpp>
#include <millrace/loader/detail/item_samples.hpp>
#include <millrace/loader/detail/progress_line.hpp>
#include <millrace/loader/detail/run_account.hpp>
#include <millrace/loader/run_options.hpp>
#include <millrace/loader/run_stats.hpp>
#include <millrace/loop/detail/thread.hpp>
#include <millrace/loop/make_event_loop.hpp>

namespace millrace {

/// A pipeline that runs on its own loop thread, seen from the training thread: a range for one pass.
///
///     for (auto& batch : run(std::move(pipeline), {.prefetch = 2})) train_step(batch);
///
/// The loop starts with the object. At most `prefetch` items wait for the training thread; the item in hand is dropped
/// before the next one is asked for, and does not count. Exceptions of the pipeline are thrown here, after the items
/// that came before them, once; an empty pipeline, and a run that was moved from, are usage_error. Dropping it mid-way
/// destroys the pipeline on its thread at once, transfers in flight included, waits for pool jobs that run, and joins.
/// All calls are for one thread, except stats().
template <class T>
class running {
 public:
  running(async_generator<T> pipeline, const run_options& options) : state_(std::make_unique<state>(options)) {
    if (!pipeline) detail::misused("an empty pipeline was run: it was moved from, or has been run before");
    if (options.budget != 0) check_budget(with_prefetch(pipeline.bounds(), options), options.budget);
    pipeline.numbered();
    state_->account.begin();
    thread_ = detail::thread("millrace-loop",
                             [s = state_.get(), p = std::move(pipeline)]() mutable { s->run_loop(std::move(p)); });
  }
  running(running&&) noexcept = default;
  running& operator=(running&&) = delete;
  ~running() { stop(); }

  /// The next item; nullopt at the end. Drops the item in hand first, unless nobody has looked at it yet: then that is
  /// the next one.
  std::optional<T> next() {
    check();
    if (current_ && !seen_) return std::exchange(current_, std::nullopt);
    return fetch();
  }

  class iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    iterator() = default;
    explicit iterator(running& r) noexcept : running_(&r) {}
    T& operator*() const noexcept { return running_->look(); }
    T* operator->() const noexcept { return __builtin_addressof(running_->look()); }
    iterator& operator++() {
      running_->advance();
      return *this;
    }
    void operator++(int) { running_->advance(); }
    bool operator==(std::default_sentinel_t) const noexcept { return !running_->current_.has_value(); }

   private:
    running* running_ = nullptr;
  };
  /// At the item in hand if nobody has looked at it yet, else at the next one: loops one after the other, and next()
  /// between them, meet every item once.
  iterator begin() {
    check();
    if (!current_ || seen_) advance();
    return iterator(*this);
  }
  std::default_sentinel_t end() const noexcept { return std::default_sentinel; }

  /// What has happened so far; thread-safe. Valid after the end too.
  run_stats stats() const {
    check();
    return state_->account.snapshot();
  }

  /// Ends the run early: as the destructor, but stats() stay readable.
  void stop() noexcept {
    if (!thread_.joinable()) return;
    current_.reset();
    state_->queue.send(state_->stop);
    finish();
  }

 private:
  class stop_message final : public remote_node {
   public:
    bool arrived = false;  // the loop's thread only

   protected:
    void run() noexcept override { arrived = true; }
  };
  struct state {
    explicit state(const run_options& o) : options(o), queue(o.prefetch < 1 ? 1 : o.prefetch, o.prefetch_bytes) {}

    void run_loop(async_generator<T> pipeline) noexcept {
      try {
        loop_options how;
        how.force_epoll = options.force_epoll;
        how.made = [](const void* limits, executor& made) {
          http::engine_defaults::set(made, *static_cast<const http::engine_options*>(limits));
        };
        how.made_context = &options.http;
        const std::unique_ptr<event_loop> loop = make_event_loop(how);
        if (options.loops > 1) {
          loop->service<loop_group>([&] { return std::make_unique<loop_group>(*loop, options.loops, how); });
        }
        {
          const std::optional<std::uint32_t> declared = pipeline.declared_rank();
          const std::uint32_t rank = options.rank ? options.rank->index : declared.value_or(0);
          detail::progress_line<> line(*loop, account, options.show, rank);
          started<void> pump(*loop, fill(std::move(pipeline)), account.sink());
          struct leave_loop {
            state& self;
            ~leave_loop() {
              self.queue.attach(nullptr);
              self.queue.clear();  // before the pipeline: items may refer to what its stages own
              self.account.end();
            }
          } guard{*this};  // also when the loop fails: the training thread must not post to a loop that is gone
          queue.attach(loop.get());
          loop->run_until([&] { return stop.arrived || pump.done(); });
        }
        loop->drain();
      } catch (...) {
        queue.attach(nullptr);
        queue.finish(std::current_exception());
      }
    }

    task<void> fill(async_generator<T> pipeline) {
      detail::compactor<T> kept;
      try {
        for (;;) {
          while (!queue.reserve()) co_await queue.room().wait();
          std::optional<T> item = co_await pipeline.next();
          if (!item) break;
          kept(*item);
          queue.push(std::move(*item));
        }
        queue.finish(nullptr);
      } catch (...) {
        queue.finish(std::current_exception());
      }
      // The items that wait are taken by the training thread; the loop stays until they are, since they may need it.
      while (!queue.drained()) co_await queue.room().wait();
    }

    const run_options options;
    detail::run_account<> account;
    detail::handover<T> queue;
    stop_message stop;
  };

  static std::vector<stage_bounds> with_prefetch(std::vector<stage_bounds> bounds, const run_options& options) {
    const std::size_t items = options.prefetch < 1 ? 1 : options.prefetch;
    const std::size_t stated = options.prefetch_bytes;
    if (stated == 0 && detail::declared_before_v<T>) return bounds;
    // Where sizes are not counted, they are that of the type.
    const bool fixed = stated == 0 && !detail::counts_bytes_v<T>;
    bounds.push_back(stage_bounds{"run", items, detail::declared_bytes<T>(items, fixed ? SIZE_MAX : stated)});
    return bounds;
  }

  void check() const {
    if (state_ == nullptr) detail::misused("a run was used that was moved from");
  }
  /// The next item from the loop. Drops the item in hand first.
  std::optional<T> fetch() {
    current_.reset();
    if (ended_) return std::nullopt;
    const std::int64_t asked = monotonic_ns();
    state_->account.asks(asked);
    std::optional<T> item;
    try {
      item = state_->queue.pop(
          [&](const T& taken) { state_->account.got_item(asked, monotonic_ns(), detail::item_samples(taken)); });
    } catch (...) {
      state_->account.got_none(asked, monotonic_ns());
      stop();  // not finish(): it may be the item's move that threw, and then the loop does not know of an end
      throw;
    }
    if (!item) {
      state_->account.got_none(asked, monotonic_ns());
      finish();
    }
    return item;
  }
  void advance() {
    current_ = fetch();
    seen_ = false;
  }
  T& look() noexcept {
    seen_ = true;
    return *current_;
  }
  void finish() noexcept {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }

  std::unique_ptr<state> state_;
  std::optional<T> current_;
  bool seen_ = false;  // whether an iterator has shown the item in hand
  detail::thread thread_;
  bool ended_ = false;
};

/// Runs `pipeline` on a loop thread of its own (`options.loops` threads in all); see running. Throws
/// configuration_error before anything is requested when the declared bounds do not fit into options.budget.
template <class T>
[[nodiscard("dropping it ends the run")]] running<T> run(async_generator<T>&& pipeline,
                                                         const run_options& options = {}) {
  return running<T>(std::move(pipeline), options);
}

}  // namespace millrace
