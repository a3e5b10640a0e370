// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/item.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/flow/detail/run_iterator.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/loader/detail/run_state.hpp>
#include <millrace/loader/detail/runtime_core.hpp>
#include <millrace/loader/detail/stop_causes.hpp>
#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/loader/run_options.hpp>
#include <millrace/loader/run_stats.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_EXTERN_TEMPLATE(std::shared_ptr<run_state<device_batch>> make_run_state<device_batch>(
    async_generator<device_batch>, const run_options&, std::size_t, std::uint32_t));
MILLRACE_EXTERN_TEMPLATE(std::shared_ptr<run_state<std::vector<sample>>> make_run_state<std::vector<sample>>(
    async_generator<std::vector<sample>>, const run_options&, std::size_t, std::uint32_t));

/// How many samples an item of the training thread holds: `samples_in_batch(item)` (see data/item.hpp);
/// built in for vectors, which batch() makes (one of numbers is a sample itself). 0: not known.
template <class T>
std::int64_t item_samples(const T& item) {
  if constexpr (has_samples_in_batch<T>) {
    return static_cast<std::int64_t>(samples_in_batch(item));
  } else {
    return 0;
  }
}
template <class T, class A>
std::int64_t item_samples(const std::vector<T, A>& items) {
  return std::is_arithmetic_v<T> ? 0 : static_cast<std::int64_t>(items.size());
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// The declared bounds of a pipeline's stages, as a table: `budget_table(pipeline.bounds())`.
std::string budget_table(const std::vector<stage_bounds>& bounds);

/// The rest of `budget` bytes beyond the bounds, for stages that have to grow; SIZE_MAX if `budget` is 0 (no budget).
/// Throws configuration_error, which lists the bounds, if they do not fit, or if a stage that works ahead states no
/// bound in bytes.
std::size_t check_budget(const std::vector<stage_bounds>& bounds, std::size_t budget);

namespace detail {
/// Throws configuration_error, which names the stage and the remedy, if a stage breaks the guarantees of epochs() for
/// ranks and states. Returns why there is no state; null if there may be one.
const char* check_places(const std::vector<place_note>& notes, const std::optional<rank>& mine);

/// How the ranks of a pipeline agree on the item after which they stop.
enum class stopping : unsigned char {
  by_vote,   ///< by stop_vote, if their group is known: they take equally many items
  by_steps,  ///< by equal_batches, before each step
  alone,     ///< not: they take unequally many
};
stopping how_to_stop(const std::vector<place_note>& notes) noexcept;
/// Logs, once in a process, that a signal stops this rank and not the others; nothing if there are none.
void log_stops_alone(runtime_parts& log, const std::optional<rank>& mine);

/// Logs, once in a run, an epoch of which it has taken empty entries alone. The training thread's.
class empty_epochs {
 public:
  /// An item was taken; `begins`: nothing of its epoch was taken before the run.
  void took(const epoch_mark& mark, bool begins, runtime_parts& log);
  /// The run has ended.
  void ended(runtime_parts& log);

 private:
  epoch_mark latest_;
  std::uint64_t items_ = 0;  // of its epoch, while all are empty
  bool empty_ = false;       // they are, from the epoch's first one on
  bool said_ = false;
};

inline constexpr const char* empty_run = "an empty pipeline was run: it was moved from, or has been run before";
}  // namespace detail

/// A pipeline that runs on a loop of a runtime, seen from the training thread: a range for one pass.
///
///     for (auto& batch : rt.run(std::move(pipeline), {.prefetch = 2})) train_step(batch);
///
/// The pipeline starts with the object. At most run_options::prefetch items wait for the training thread; the item that
/// it has is dropped before the next one is asked for, and does not count.
///
/// Concurrency: all calls are for one thread at a time, except stats(), taken() and those about stopping, which are for
/// any while the run lives and is not moved. Several runs of a runtime may be on several threads. Cancellation: stop()
/// ends it early; dropping it early destroys the pipeline on its loop's thread at once, transfers in flight included,
/// and waits for that, and for the program's functions that other threads have begun for it (jobs of a pool); not for
/// other runs.
/// Lifetime: it keeps the runtime's loops and pool alive, even after the runtime object. Errors: exceptions of the
/// pipeline are thrown here, after the items that came before them, once; so is the failure of a loop. An empty
/// pipeline, and a run that was moved from, are usage_error.
template <class T>
class pipeline_run {
  using core = detail::runtime_core;
  using shared = detail::run_state<T>;

 public:
  /// See runtime::run().
  pipeline_run(std::shared_ptr<core> parts, stream<T>&& pipeline, const run_options& options);
  pipeline_run(pipeline_run&&) noexcept = default;
  pipeline_run& operator=(pipeline_run&&) = delete;
  ~pipeline_run() { leave(); }

  /// The next item; nullopt at the end, and once the run was stopped: see outcome(). Drops the current item first,
  /// unless no iterator has shown it yet: then that is the next one. Waits as long as it takes. A second thread that is
  /// in a call, or in a step of a loop, meanwhile gets a usage_error.
  std::optional<T> next() { return next(duration::max()); }
  /// As next(), for `longest` at most: nullopt after that, too, and the run goes on. 0 takes what is there. Where ranks
  /// gather who is asked to stop (see stop()), that takes its own time.
  std::optional<T> next(duration longest) {
    const one_thread here(*this);
    const bool in_hand = current_ && !seen_;
    std::optional<T> item = in_hand ? std::exchange(current_, std::nullopt) : fetch(longest);
    if (in_hand) outcome_ = run_outcome::item;
    show();
    return item;
  }
  /// What the latest next(), or step of a loop, came to; before the first `item`. After an error `ended`.
  run_outcome outcome() const noexcept { return outcome_; }

  using iterator = detail::run_iterator<pipeline_run, T>;
  /// At the current item if no iterator has shown it yet, else at the next one: several loops in a row, and next()
  /// between them, get every item once.
  /// A loop over a run that has ended is a usage_error; over one that was stopped it is empty.
  iterator begin() {
    const one_thread here(*this);
    if (ended_ && !stopped() && !current_) {
      detail::misused("a loop over a run that has ended: a run is one pass, so make another one by run()");
    }
    if (!current_ || seen_) move_on();
    return iterator(*this);
  }
  std::default_sentinel_t end() const noexcept { return std::default_sentinel; }

  /// Metrics of the run so far; thread-safe. Valid after the end, too.
  run_stats stats() const;

  /// The state after the item that was returned last; items that were prefetched and not taken do not count. A text
  /// (JSON, under 1 KB; without an index up to 16 bytes a sample of the window) for epochs(), to be saved
  /// beside the model. With an index it is the same on all ranks that have taken the same number of batches, without
  /// one each rank has its own. Valid before the first item and after the end, too. Microseconds; without an index less
  /// than a millisecond.
  ///
  /// usage_error if there is none, before the first item too: the pipeline does not begin with one epochs(); a stage
  /// changes the order (shuffle(), order::arrival), or its items have no mark_of(). With several ranks, after a batch
  /// that does not end a step of epochs(), or a window that does not consist of steps.
  std::string state() const;
  /// How many batches an epoch has, on every rank, if the source knows it before it reads: epochs() does, for batches
  /// of epochs_options::batch.
  std::optional<std::uint64_t> batches() const {
    check();
    return position_ == nullptr ? std::nullopt : position_->batches();
  }

  /// Ends the run after the item that next() has given last: next() and loops return the end from then on, also a call
  /// that waits now, and state() is the one after that item. Operations in flight are cancelled. Items made ahead are
  /// dropped and come again after a resume, and so does an error after it. Returns at once, and so do next() and
  /// state(): the program's functions on other threads, and copies to a device, are waited for when the run is dropped.
  ///
  /// Any thread; for signals see run_options::stop_on. Before the first next() no item is given. Calling it again, or
  /// after the end, does nothing.
  ///
  /// With several ranks, and a rank_group in epochs_options::ranks, all ranks stop after the same item, within 2 s and
  /// the time of a step. By notes (a group by the store, c10d_ranks()) this rank tells the others, next() waits while
  /// the loops agree, and the item is the furthest rank's. By a function alone next() gathers from all ranks who was
  /// asked to stop, before some of the items, every half second to a second. With equal_batches it is the next step
  /// that all begin. Without either, and where ranks take unequally many items (.uneven), a rank stops by itself.
  void stop() noexcept {
    if (state_ != nullptr && state_->process.here()) state_->ask_to_stop();
  }
  /// Ends the run as stop() does, once next() has given `items` items in all since it began; now, if it has given as
  /// many or more. If there are several calls, the lowest number counts. For ranks that agree on a step by means of
  /// their own: see taken(). Any thread.
  void stop_after(std::uint64_t items) noexcept {
    if (state_ != nullptr && state_->process.here()) state_->stop_after(items);
  }
  /// Ends the run as stop() does when `told` ends; a log line shows the reason that it returns:
  /// `run.stop_when(mill::s3::spot_notice())`. It runs on the run's loop, and is dropped with the run. If it throws, a
  /// log line says so, and the run goes on. After the end it is dropped. Any thread.
  void stop_when(task<std::string> told) {
    check();
    if (!told) detail::misused("stop_when() was given an empty task");
    state_->stops.add(std::move(told));
  }
  /// True if a stop was asked for, by stop(), a signal or stop_when(). Any thread.
  bool stop_asked() const noexcept { return state_ != nullptr && state_->wanted.load(std::memory_order_acquire); }
  /// True if next() has returned the end because the run was stopped, and not because the pipeline has ended: there may
  /// be more, and state() leads to it. Any thread.
  bool stopped() const noexcept { return state_ != nullptr && state_->stopped.load(std::memory_order_acquire); }
  /// How many items next() and loops have given since the run began. Any thread.
  std::uint64_t taken() const {
    check();
    return state_->queue.taken();
  }

 private:
  friend class detail::run_iterator<pipeline_run, T>;

  /// Ends the run early, and waits until nothing of it is left.
  void leave() noexcept;

  static std::vector<stage_bounds> with_prefetch(std::vector<stage_bounds> bounds, const run_options& options) {
    const std::size_t items = detail::prefetch_items<T>(options.prefetch);
    const std::size_t stated = options.prefetch_bytes;
    if (stated == 0 && detail::declared_before_v<T>) return bounds;
    // If sizes are not counted, each item has the size of its type.
    const bool fixed = stated == 0 && !detail::counts_bytes_v<T>;
    bounds.push_back(stage_bounds{"run", items, detail::declared_bytes<T>(items, fixed ? SIZE_MAX : stated)});
    return bounds;
  }

  void check() const {
    if (state_ == nullptr) detail::misused("a run was used that was moved from");
    state_->process.check("a run");
  }
  /// One thread at a time takes items.
  class one_thread {
   public:
    explicit one_thread(pipeline_run& run) {
      run.check();
      if (run.state_->in_next.exchange(true, std::memory_order_acquire)) {
        detail::misused("two threads take items of one run at the same time: one thread does");
      }
      flag_ = &run.state_->in_next;
    }
    one_thread(const one_thread&) = delete;
    one_thread& operator=(const one_thread&) = delete;
    ~one_thread() { flag_->store(false, std::memory_order_release); }

   private:
    std::atomic<bool>* flag_;
  };
  /// The next item from the loop. Drops the current item first.
  std::optional<T> fetch(duration longest);
  /// Stops if all ranks do.
  void vote();
  void advance() {
    const one_thread here(*this);
    move_on();
  }
  void move_on() {
    current_ = fetch(duration::max());
    seen_ = false;
  }
  bool in_hand() const noexcept { return current_.has_value(); }
  T& look() noexcept {
    show();
    seen_ = true;
    return *current_;
  }
  /// The program sees the item: from now on state() is the one after it.
  void show() noexcept {
    if (!unseen_) return;
    unseen_ = false;
    any_ = true;
    mark_.join(fetched_);
  }
  void finish() noexcept;

  std::shared_ptr<core> core_;  // until the run has ended
  std::shared_ptr<shared> state_;
  std::size_t loop_ = 0;  // its number
  std::optional<T> current_;
  bool seen_ = false;  // an iterator has shown the current item
  bool ended_ = false;
  run_outcome outcome_ = run_outcome::item;
  std::unique_ptr<detail::stop_vote> vote_;          // null: this rank stops by itself
  std::shared_ptr<const stream_position> position_;  // null: the source has none
  const char* no_state_ = nullptr;                   // why; null: there may be one
  epoch_mark fetched_;                               // of the latest item from the queue
  bool unseen_ = false;                              // the training thread has not seen that one yet
  epoch_mark mark_;                                  // of all that it has seen
  bool any_ = false;                                 // it has seen one
  detail::empty_epochs empty_epochs_;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

template <class T>
pipeline_run<T>::pipeline_run(std::shared_ptr<core> parts, stream<T>&& pipeline, const run_options& options)
    : core_(std::move(parts)) {
  if (!pipeline) detail::misused(detail::empty_run);
  const std::size_t spare = check_budget(with_prefetch(pipeline.bounds(), options), options.budget);
  detail::stream_access::number(pipeline);
  const std::optional<rank> declared = pipeline.declared_rank();
  if (declared) detail::log_forgotten_launcher(*core_, *declared, process_environment());
  position_ = pipeline.position();
  no_state_ = detail::check_places(detail::stream_access::places(pipeline), declared);
  if (position_ != nullptr) position_->check_window(pipeline.window());
  const std::optional<millrace::rank>& given = options.rank ? options.rank : core_->options().rank;
  const std::uint32_t shown = given ? given->index : declared ? declared->index : 0;
  const detail::stopping how = detail::how_to_stop(detail::stream_access::places(pipeline));
  if (how == detail::stopping::by_vote && pipeline.ranks() != nullptr) {
    vote_ = std::make_unique<detail::stop_vote>(pipeline.ranks());
  } else if (how != detail::stopping::by_steps && !options.stop_on.empty()) {
    detail::log_stops_alone(*core_, declared);
  }
  state_ = detail::make_run_state<T>(std::move(pipeline).generator(), options, spare, shown);
  state_->metrics.placed_by(core_->placer());
  core_->share_with(state_->metrics);
  state_->agreed = vote_ != nullptr || how == detail::stopping::by_steps;
  if (!options.stop_on.empty()) state_->stops.hold(options.stop_on, *core_);
  if (vote_ != nullptr && vote_->by_notes()) state_->stops.add(detail::stop_by_notes(*vote_, state_->wanted));
  state_->trace.begin(core_->all_traces(), options.trace, shown);
  state_->metrics.trace_to(state_->trace.events(), state_->trace.number(), core_->options().ranges);
  state_->metrics.begin();
  loop_ = core_->assign_loop();
  shared::start(state_, core_->loop(loop_));
}

template <class T>
void pipeline_run<T>::leave() noexcept {
  if (state_ != nullptr && !state_->process.here()) {  // items may belong to threads that do not exist here
    detail::leak(current_);
    detail::leak(state_);
    detail::leak(core_);
    return;
  }
  if (core_ == nullptr) return;
  current_.reset();
  state_->stop();
  finish();
}

template <class T>
std::optional<T> pipeline_run<T>::fetch(duration longest) {
  current_.reset();
  if (ended_) return std::nullopt;
  state_->stops.poll(core_->loop(loop_));
  vote();
  if (position_ != nullptr) position_->passed(mark_);
  const std::int64_t asked = state_->metrics.asks();
  state_->context.set_consumer_waits_since(asked);
  std::optional<T> item;
  try {
    item = state_->queue.pop(
        [&](const T& taken, bool waited) {
          state_->context.set_consumer_waits_since(run_context::not_waiting);
          state_->metrics.got_item(asked, waited ? monotonic_ns() : asked, detail::item_samples(taken));
          fetched_ = detail::mark_of_item(taken);
          if (position_ != nullptr && fetched_.known) state_->metrics.at(position_->place(fetched_));
          unseen_ = true;
        },
        longest, outcome_);
  } catch (...) {
    state_->context.set_consumer_waits_since(run_context::not_waiting);
    state_->metrics.got_none(asked, monotonic_ns());
    leave();  // not finish(): if it was the item's move that threw, the loop has not ended
    throw;
  }
  if (item && position_ != nullptr && fetched_.known) {
    empty_epochs_.took(fetched_, position_->place(fetched_).batch <= 1, *core_);
  }
  if (!item) {
    state_->context.set_consumer_waits_since(run_context::not_waiting);
    state_->metrics.got_none(asked, monotonic_ns());
    if (outcome_ == run_outcome::stopped) {
      ended_ = true;
      state_->stopped.store(true, std::memory_order_release);
      state_->stop();  // leave() waits for it
    } else if (outcome_ == run_outcome::ended) {
      empty_epochs_.ended(*core_);
      finish();
    }
  }
  return item;
}

template <class T>
void pipeline_run<T>::vote() {
  if (vote_ == nullptr) return;
  try {
    if (!vote_->over(state_->queue.taken(), stop_asked())) return;
  } catch (...) {  // a rank is gone
    outcome_ = run_outcome::ended;
    leave();
    throw;
  }
  state_->wanted.store(true, std::memory_order_release);
  state_->stop_after(0);
}

template <class T>
void pipeline_run<T>::finish() noexcept {
  ended_ = true;
  if (core_ == nullptr) return;
  state_->wait();
  state_->metrics.trace_to(nullptr, 0, nullptr);
  state_->trace.end(*core_);
  state_->stops.release();
  core_->release_loop(loop_);
  core_.reset();
}

template <class T>
std::string pipeline_run<T>::state() const {
  check();
  if (position_ == nullptr) {
    detail::misused("state(): the pipeline does not begin with epochs() that is given a store, or with several");
  }
  if (!detail::has_mark_v<T> || (any_ && !mark_.known)) {
    detail::misused("state(): the items have no marks: give their type a function mark_of()");
  }
  if (no_state_ != nullptr) detail::misused(no_state_);
  if (mark_.disordered) detail::misused("state(): a stage after epochs() has changed the order of the samples");
  if (mark_.known && !mark_.whole) {
    detail::misused("state(): the current batch ends inside a step: it must have the size of epochs_options::batch");
  }
  return position_->state(mark_);
}

template <class T>
run_stats pipeline_run<T>::stats() const {
  check();
  run_stats now = state_->metrics.snapshot();
  if (position_ != nullptr) now.lost = position_->lost();
  return now;
}

MILLRACE_EXTERN_TEMPLATE(class pipeline_run<device_batch>);
MILLRACE_EXTERN_TEMPLATE(class pipeline_run<std::vector<sample>>);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/pipeline_run.ipp>
#endif
