// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/environment.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/flow/detail/run_iterator.hpp>
#include <millrace/flow/detail/window.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/loader/budget.hpp>
#include <millrace/loader/detail/forgotten_launcher.hpp>
#include <millrace/loader/detail/item_samples.hpp>
#include <millrace/loader/detail/run_state.hpp>
#include <millrace/loader/detail/runtime_core.hpp>
#include <millrace/loader/run_options.hpp>
#include <millrace/loader/run_stats.hpp>

namespace millrace {

namespace detail {
inline constexpr const char* empty_run = "an empty pipeline was run: it was moved from, or has been run before";
}  // namespace detail

/// A pipeline that runs on a loop of a runtime, seen from the training thread: a range for one pass.
///
///     for (auto& batch : rt.run(std::move(pipeline), {.prefetch = 2})) train_step(batch);
///
/// The pipeline starts with the object. At most `prefetch` items wait for the training thread; the item in hand is
/// dropped before the next one is asked for, and does not count.
///
/// Concurrency: all calls are for one thread at a time, except stats(). Several runs of a runtime may be on several
/// threads. Cancellation: dropping it mid-way destroys the pipeline on its loop's thread at once, transfers in flight
/// included, and waits for that, and for the program's functions that other threads have begun for it (jobs of a pool);
/// not for other runs. Lifetime: it keeps the runtime's loops and pool alive, also when the runtime object has gone.
/// Errors: exceptions of the pipeline are thrown here, after the items that came before them, once; so is the failure
/// of a loop. An empty pipeline, and a run that was moved from, are usage_error.
template <class T>
class pipeline_run {
  using core = detail::runtime_core;
  using shared = detail::run_state<T>;

 public:
  /// See runtime::run().
  pipeline_run(std::shared_ptr<core> parts, stream<T>&& pipeline, const run_options& options)
      : core_(std::move(parts)) {
    if (!pipeline) detail::misused(detail::empty_run);
    const std::size_t spare = check_budget(with_prefetch(pipeline.bounds(), options), options.budget);
    detail::stream_door::number(pipeline);
    const std::optional<rank> declared = pipeline.declared_rank();
    if (declared) detail::say_launcher(*core_, *declared, process_environment());
    position_ = pipeline.position();
    if (position_ != nullptr) position_->check_window(pipeline.window());
    const std::optional<millrace::rank>& given = options.rank ? options.rank : core_->options().rank;
    const std::uint32_t shown = given ? given->index : declared ? declared->index : 0;
    state_ = std::make_shared<shared>(std::move(pipeline).generator(), options, spare, shown);
    state_->account.begin();
    home_ = core_->move_in();
    shared::start(state_, core_->loop(home_));
  }
  pipeline_run(pipeline_run&&) noexcept = default;
  pipeline_run& operator=(pipeline_run&&) = delete;
  ~pipeline_run() { stop(); }

  /// The next item; nullopt at the end. Drops the item in hand first, unless no iterator has shown it yet: then that is
  /// the next one.
  std::optional<T> next() {
    check();
    const bool in_hand = current_ && !seen_;
    std::optional<T> item = in_hand ? std::exchange(current_, std::nullopt) : fetch();
    show();
    return item;
  }

  using iterator = detail::run_iterator<pipeline_run, T>;
  /// At the item in hand if no iterator has shown it yet, else at the next one: several loops in a row, and next()
  /// between them, get every item once.
  iterator begin() {
    check();
    if (!current_ || seen_) advance();
    return iterator(*this);
  }
  std::default_sentinel_t end() const noexcept { return std::default_sentinel; }

  /// What has happened so far; thread-safe. Valid after the end too.
  run_stats stats() const {
    check();
    run_stats now = state_->account.snapshot();
    if (position_ != nullptr) now.lost = position_->lost();
    return now;
  }

  /// Where the training stands behind the item that the loop has in hand, whatever was made ahead of it: a text (JSON,
  /// under 1 KB; without an index up to 16 bytes a sample of the window) for epochs_options::resume, to be kept beside
  /// the model. With an index it is the same on all ranks that have taken the same number of batches, without one each
  /// rank has its own. Before the first item, that of the beginning; after the end too. Microseconds, without an index
  /// less than a millisecond.
  ///
  /// usage_error, with a sentence, where there is none: the pipeline does not begin with epochs(), or with several; a
  /// stage has changed the order (bucket_by_length() may), or makes items that say no mark_of(); with several ranks, a
  /// batch that is no step of epochs(), or a window that is not made of steps.
  std::string state() const {
    check();
    if (position_ == nullptr) {
      detail::misused("state(): the pipeline does not begin with epochs() that is given a store, or with several");
    }
    if (any_ && !mark_.known) {
      detail::misused("state(): the items do not say where they stand: give their type a function mark_of()");
    }
    if (mark_.disordered) detail::misused("state(): a stage behind epochs() has changed the order of the samples");
    if (mark_.known && !mark_.whole) {
      detail::misused("state(): the batch in hand ends inside a step: it must have the size of epochs_options::batch");
    }
    return position_->state(mark_);
  }
  /// How many batches an epoch has, on every rank, where the source knows it beforehand: epochs() does, for batches of
  /// the size it was told.
  std::optional<std::uint64_t> batches() const {
    check();
    return position_ == nullptr ? std::nullopt : position_->batches();
  }

  /// Ends the run early: as the destructor, but stats() stay readable.
  void stop() noexcept {
    if (core_ == nullptr) return;
    current_.reset();
    state_->stop();
    finish();
  }

 private:
  friend class detail::run_iterator<pipeline_run, T>;

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
    if (position_ != nullptr) position_->passed(mark_);
    const std::int64_t asked = monotonic_ns();
    state_->account.asks(asked);
    std::optional<T> item;
    try {
      item = state_->queue.pop([&](const T& taken) {
        state_->account.got_item(asked, monotonic_ns(), detail::item_samples(taken));
        fetched_ = detail::mark_of_item(taken);
        unseen_ = true;
      });
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
  bool in_hand() const noexcept { return current_.has_value(); }
  T& look() noexcept {
    show();
    seen_ = true;
    return *current_;
  }
  /// The loop gets to see the item: from now on the state is behind it.
  void show() noexcept {
    if (!unseen_) return;
    unseen_ = false;
    any_ = true;
    mark_.join(fetched_);
  }
  void finish() noexcept {
    ended_ = true;
    if (core_ == nullptr) return;
    state_->wait();
    core_->move_out(home_);
    core_.reset();
  }

  std::shared_ptr<core> core_;  // until the run has ended
  std::shared_ptr<shared> state_;
  std::size_t home_ = 0;  // the number of its loop
  std::optional<T> current_;
  bool seen_ = false;  // whether an iterator has shown the item in hand
  bool ended_ = false;
  std::shared_ptr<const stream_position> position_;  // null: the source says none
  epoch_mark fetched_;                               // of the latest item from the queue
  bool unseen_ = false;                              // whether the training thread has not looked at that one yet
  epoch_mark mark_;                                  // of all that it has seen
  bool any_ = false;                                 // whether that is anything
};

}  // namespace millrace
