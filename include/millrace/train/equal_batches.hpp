// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/data/item.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/flow/detail/run_iterator.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/train/rank_group.hpp>

namespace millrace::inline MILLRACE_ABI {

/// How an epoch ends whose ranks have unequally many samples, each as many as its shards hold.
enum class uneven {
  pad,  ///< with the last rank's last sample; the others' batches are filled up, or all of them are entries of weight 0
  stop,  ///< with the step in which the first rank has its last sample; the rest of the others is not taken
  drop,  ///< before the first step for which a rank has less than a full batch; the rest is not taken
};

class equal_batches;

namespace detail {

/// Throws configuration_error for ranks whose epochs would end at different steps.
void check_ranks_end(const equal_batches* equal, bool uneven);

/// State shared by the stages of a pipeline and the training thread.
class equal_state {
 public:
  equal_state(std::size_t b, uneven h, rank_group g) : batch(b), how(h), group(std::move(g)) {}
  static const std::shared_ptr<equal_state>& in(const equal_batches& equal) noexcept;

  /// Called by epochs(), for a run.
  void begin(const millrace::rank& mine, std::uint64_t of_seed, std::uint64_t from_epoch, std::uint64_t to_epoch) {
    if (std::exchange(begun, true)) throw usage_error("epochs: .equal is for one run, and was given to another");
    if (mine.index != group.mine().index || mine.world_size != group.mine().world_size) {
      throw configuration_error("epochs: it is given rank " + std::to_string(mine.index) + " of " +
                                std::to_string(mine.world_size) + ", and the rank_group of .equal is rank " +
                                std::to_string(group.mine().index) + " of " +
                                std::to_string(group.mine().world_size) + ": give it the group, .ranks");
    }
    rank = mine;
    seed = of_seed;
    first_epoch = from_epoch;
    end_epoch = to_epoch;
  }
  /// The run begins after so many samples and steps of an epoch.
  void go_on(std::uint64_t epoch, std::uint64_t samples, std::uint64_t steps) {
    first_epoch = epoch;
    before = samples;
    steps_before = steps;
  }

  const std::size_t batch;
  const uneven how;
  const rank_group group;
  // Set by epochs(), at its call:
  bool begun = false;
  millrace::rank rank;
  std::uint64_t seed = 0;
  std::uint64_t first_epoch = 0;
  std::uint64_t before = 0;  // samples of this rank in it, before the run
  std::uint64_t steps_before = 0;  // likewise
  std::uint64_t end_epoch = 0;
  // Set by epochs(), before its first shard; read after the first batch:
  hash128 list;
  // For the training thread:
  std::atomic<bool> taken{false};      // of(run) decides when epochs end
  std::atomic<std::uint64_t> over{0};  // epochs before this one have ended
};

template <class T>
async_generator<T> fill_steps(async_generator<T> in, std::shared_ptr<equal_state> shared) {
  if (!shared->begun) throw usage_error("equal_batches: epochs() was not given it: say .equal there");
  std::optional<T> next = co_await in.next();
  epoch_mark reached;  // of the source's own position
  for (std::uint64_t epoch = shared->first_epoch; epoch != shared->end_epoch; ++epoch) {
    std::uint64_t items = epoch == shared->first_epoch ? shared->before : 0;
    auto steps = static_cast<std::uint32_t>(epoch == shared->first_epoch ? shared->steps_before : 0);
    reached.next = items;
    reached.part.taken = 0;
    for (std::size_t given = 0;;) {  // entries of the step
      const bool over = shared->over.load(std::memory_order_acquire) > epoch;
      const bool here = next && detail::mark_of_item(*next).epoch == epoch;
      if (here && over) {
        next = co_await in.next();
        continue;
      }
      if (given == 0 && over) break;
      if (here) {
        reached = detail::mark_of_item(*next);
        ++items;
      } else {
        reached.padding = true;
        reached.from = reached.next;
        // The first empty batch: of(run) must be able to end the epoch.
        for (int ms = 0; given == 0 && !shared->taken.load(std::memory_order_acquire); ++ms) {
          if (ms == 10000) throw usage_error("equal_batches: the run's batches are not taken through of(run)");
          co_await sleep_for(std::chrono::milliseconds(1));
        }
      }
      given = (given + 1) % shared->batch;
      if (given == 0) ++steps;
      epoch_mark mark = reached;
      mark.steps = steps;
      mark.known = mark.counted = true;
      mark.seed = shared->seed;
      mark.epoch = epoch;
      mark.position = items;
      mark.whole = given == 0;
      mark.last = mark.disordered = false;
      if (here) {
        detail::set_item_mark(*next, mark);
        co_yield give(*next);
        next = co_await in.next();
      } else {
        T empty = detail::empty_entry<T>(mark);
        co_yield give(empty);
      }
    }
  }
}

/// Returned by equal_batches::fill().
class fill_steps_stage : public library_stage {
 public:
  explicit fill_steps_stage(std::shared_ptr<equal_state> shared) : shared_(std::move(shared)) {}
  template <can_be_empty T>
  auto operator()(async_generator<T> in) && {
    const std::size_t batch = shared_->batch;
    return stream<T>(fill_steps<T>(std::move(in), std::move(shared_)))
        .named("fill")
        .batches_of(batch)
        .declares(place_effect::evens, batch);
  }
  template <class T>
  static constexpr void explain() {
    static_assert(can_be_empty<T>,
                  "equal_batches::fill() takes samples, or items of a type that can be an empty entry: with a default "
                  "constructor, mark_of() and a member `mark` or set_mark() (see data/item.hpp)");
  }

 private:
  std::shared_ptr<equal_state> shared_;
};

}  // namespace detail

/// The batches of a run that all ranks take together: returned by equal_batches::of(). A range for one pass; next() and
/// the loop's increments sum over the ranks.
template <class Run>
class equal_run {
 public:
  using value_type = typename decltype(std::declval<Run&>().next())::value_type;

  equal_run(Run& run, std::shared_ptr<detail::equal_state> shared)
      : run_(&run), shared_(std::move(shared)), samples_(shared_->before) {
    shared_->taken.store(true, std::memory_order_release);
  }

  /// The next batch, on all ranks or on none; nullopt when the last epoch has ended.
  std::optional<value_type> next() {
    current_.reset();
    while (!ended_) {
      if (stops_) {
        ended_ = true;
        if constexpr (stoppable) {
          run_->stop_after(0);
          return run_->next();  // the end, unless the run has failed meanwhile
        }
        break;
      }
      std::optional<value_type> item;
      std::exception_ptr failure;
      bool has = false;  // an item for this step
      try {
        item = of_open_epoch();
        if (item) has = looked_at(detail::mark_of_item(*item));
      } catch (...) {
        failure = std::current_exception();
      }
      const std::vector<std::uint64_t> words =
          sums({has ? 1U : 0U, failure ? 1U : 0U, item || failure ? 0U : 1U, asked_to_stop() ? 1U : 0U});
      stops_ = words[3] != 0;
      ended_ = words[1] != 0;
      if (failure) std::rethrow_exception(failure);
      if (ended_) throw io_error("another rank has failed: this one cannot continue alone");
      if (!checked_) check();
      const std::uint64_t world = shared_->group.process().world_size;
      if (words[2] != 0 && words[2] != world) throw usage_error("equal_batches: another rank's run has ended early");
      if (!item) break;
      if (shared_->how == uneven::pad ? words[0] != 0 : words[0] == world) return item;
      epoch_over();
    }
    ended_ = true;
    return std::nullopt;
  }

  using iterator = detail::run_iterator<equal_run, value_type>;
  iterator begin() {
    advance();
    return iterator(*this);
  }
  std::default_sentinel_t end() const noexcept { return std::default_sentinel; }

 private:
  friend class detail::run_iterator<equal_run, value_type>;

  static constexpr bool stoppable = requires(Run& r) { r.stop_asked(), r.stop_after(0); };

  bool asked_to_stop() const {
    if constexpr (stoppable) {
      return run_->stop_asked();
    } else {
      return false;
    }
  }
  void advance() {
    current_.reset();  // before the next one is asked for: the next may wait for its memory
    current_ = next();
  }
  bool in_hand() const noexcept { return current_.has_value(); }
  value_type& look() noexcept { return *current_; }
  /// The run's next item, without those that were made ahead for an epoch that has ended.
  std::optional<value_type> of_open_epoch() {
    for (;;) {
      std::optional<value_type> item = run_->next();
      if (!item || detail::mark_of_item(*item).epoch >= shared_->over.load(std::memory_order_relaxed)) return item;
    }
  }
  bool looked_at(const epoch_mark& mark) {
    if (!mark.known) throw usage_error("equal_batches: the items have no marks: give them a mark_of()");
    if (mark.disordered || !mark.whole) {
      throw usage_error(
          "equal_batches: a batch has another size than the one given, or a stage after fill() has changed "
          "the order");
    }
    epoch_ = mark.epoch;
    const std::uint64_t before = std::exchange(samples_, mark.position);
    return shared_->how == uneven::drop ? mark.position - before == shared_->batch : mark.position != before;
  }
  void epoch_over() {
    samples_ = 0;
    shared_->over.store(epoch_ + 1, std::memory_order_release);
    if (epoch_ + 1 != shared_->end_epoch) return;
    ended_ = true;
    while (of_open_epoch()) {
    }
  }
  /// Each word's sum over the processes.
  std::vector<std::uint64_t> sums(const std::vector<std::uint64_t>& mine) const {
    const std::vector<std::uint64_t> all = shared_->group.gather_now(mine, "a step of equal_batches");
    std::vector<std::uint64_t> total(mine.size(), 0);
    for (std::size_t i = 0; i < all.size(); ++i) total[i % mine.size()] += all[i];
    return total;
  }
  void check() {
    checked_ = true;
    const detail::equal_state& s = *shared_;
    const rank_setting settings[] = {{"the seed", s.seed},
                                     {".first_epoch", s.first_epoch},
                                     {"the last epoch", s.end_epoch},
                                     {"the step of the state", s.steps_before},
                                     {"the size of a batch", s.batch},
                                     {"how uneven epochs end", static_cast<std::uint64_t>(s.how)},
                                     {"the digest of the list", s.list.low}};
    s.group.compare(settings);
  }

  Run* run_;
  std::shared_ptr<detail::equal_state> shared_;
  std::optional<value_type> current_;  // of the iterator
  std::uint64_t epoch_ = 0;            // of the latest item
  std::uint64_t samples_;              // of this rank in it, so far
  bool checked_ = false;
  bool ended_ = false;
  bool stops_ = false;  // a rank was asked to stop before the latest step
};

/// Gives all ranks equally many batches of equal size in every epoch, where no index says how many samples there are.
///
///     const mill::rank_group mine = mill::mpi_ranks();
///     const mill::equal_batches equal(256, mill::uneven::pad, mine);
///     auto training = mill::shard_epochs(s3.list("s3://corpus/train/"),
///                                        {.seed = 7, .epochs = 90, .rank = mine.mine(), .equal = &equal})
///                     | mill::fetch(s3) | mill::untar() | mill::group_samples()
///                     | mill::shuffle({.window = 4096}) | equal.fill() | mill::batch();
///     auto run = rt.run(std::move(training));
///     for (auto& batch : equal.of(run)) train(batch);
///
/// epochs() of a dataset without an index fills by itself. flat_map() and pack() make unequally many items on the
/// ranks, with an index and without: put fill() after them. Without an index say .uneven beside .equal then, so that
/// epochs() does not fill before them:
///
///     mill::epochs(recordings, {.batch = 256, .ranks = mine, .equal = &equal, .uneven = true})
///         | mill::flat_map(clips) | equal.fill() | mill::batch()
///
/// Put fill() before the stage that makes batches, of the same size. It takes samples, and any type that can be an
/// empty entry (see data/item.hpp). A stage after it that leaves an item out keeps its place. It pads the last batch of
/// the epoch, then yields empty batches (entries of weight 0, as epochs() of an index makes them) until every rank has
/// finished. of() asks the ranks, once before each batch, whether this step is one more of the epoch, as `how` defines
/// it. So a step is taken on all ranks or on none. Items made ahead for an epoch that has ended are skipped; shards of
/// it that are not begun are not read. An error in one rank's run is an error on all, in the same step. The first time,
/// the ranks' settings and lists are compared.
///
/// The ranks are asked on the thread that calls next(), where they synchronise in every step anyway: that costs one
/// more all-gather of 72 bytes a rank. A group by the store answers in a tenth of a second at best, and makes five
/// requests a rank: it is for steps that take long. If one rank's run is asked to stop (pipeline_run::stop(), a
/// signal), all of them stop after the same step, the next one that all begin. If a loop is left early, all ranks must
/// leave it after the same batch. For one run; copies are the same one.
class equal_batches {
 public:
  /// configuration_error for a batch size of 0.
  equal_batches(std::size_t batch, uneven how, rank_group ranks) {
    if (batch == 0) throw configuration_error("equal_batches: the size of a batch must not be 0");
    shared_ = std::make_shared<detail::equal_state>(batch, how, std::move(ranks));
  }

  /// The stage in front of batch(), fill_batches() and the like.
  auto fill() const { return detail::fill_steps_stage(shared_); }
  /// The batches of the run, which must outlive it.
  template <class Run>
  equal_run<Run> of(Run& run) const {
    return equal_run<Run>(run, shared_);
  }

 private:
  friend class detail::equal_state;
  std::shared_ptr<detail::equal_state> shared_;
};

inline const std::shared_ptr<detail::equal_state>& detail::equal_state::in(const equal_batches& equal) noexcept {
  return equal.shared_;
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/equal_batches.ipp>
#endif
