// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/base/wait_list.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/item.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/flow/detail/places.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/sync/event.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The calls that map_concurrent has started, and their results until they are taken: part of the stage's generator.
///
/// A slot is taken from the start of its task until the consumer has taken the result.
template <class U, class T, class F>
class concurrent_calls {
 public:
  /// Starts at once. With `continues` a failure does not stop the pulling.
  concurrent_calls(generator_context<U> here, async_generator<T>& source, F& f, std::size_t limit, std::size_t bytes,
                   order o, bool continues)
      : here_(here), f_(f), order_(o), continues_(continues), window_(limit, bytes, here), slots_(limit + 1) {
    for (slot& s : slots_) free_.push(s);
    pump_.start(here, *this, source);
  }
  concurrent_calls(const concurrent_calls&) = delete;
  concurrent_calls& operator=(const concurrent_calls&) = delete;

  /// The next slot in the order of delivery has a result or an error.
  bool has_result() const noexcept { return !queue_.empty() && queue_.front().done; }
  /// No calls are under way, and no more will be started.
  bool ended() const noexcept { return pump_.ended() && window_.items() == 0; }
  void rethrow() { pump_.rethrow(); }
  auto wait() noexcept { return progress_.wait(); }

  /// The reason why the next slot in the order of delivery has no result; null if it has one.
  std::exception_ptr take_failure() noexcept { return std::exchange(queue_.front().error, nullptr); }
  /// The place of its item.
  const item_place& place() const noexcept { return queue_.front().place; }
  /// The mark of its item, kept if a result can be an empty entry.
  const epoch_mark& mark() const noexcept { return queue_.front().mark; }
  /// In order of arrival the next slot in the order of delivery takes the next place. Once for each, before the above.
  void take_place() {
    if constexpr (has_mark_v<T> && moves_place_v<U>) {
      slot& s = queue_.front();
      if (order_ != order::arrival || !s.mark.placed()) return;
      s.mark = places_.next();
      s.mark.disordered = true;
      if (s.result && detail::mark_of_item(*s.result).placed()) detail::move_to_place(*s.result, s.mark);
    }
  }
  /// Its result, which is about to be yielded; pop() follows.
  U& yielding() {
    slot& s = queue_.front();
    s.work = spawned<void>();
    window_.yielding(s.bytes);
    return *s.result;
  }
  /// After the yield, or after a failure: frees the slot.
  void pop() noexcept {
    slot& s = queue_.pop();
    window_.remove_taken();
    if (!s.result) {
      s.work = spawned<void>();
      window_.remove(s.bytes);
      window_.freed().notify();
    }
    s.result.reset();
    s.done = false;
    free_.push(s);
  }

 private:
  friend pump<T, concurrent_calls>;

  struct slot : waiter {
    std::optional<U> result;
    std::exception_ptr error;
    std::size_t bytes = 0;
    bool done = false;
    item_place place;
    epoch_mark mark;
    spawned<void> work;
  };

  /// The items of an epoch that are worked on, in order of arrival: no item of a later epoch comes before them.
  struct arrivals {
    std::uint64_t epoch = 0;
    std::size_t under_way = 0;
    wait_list<slot> done;
  };

  bool has_room() noexcept { return window_.room(); }
  void take(T&& item) {
    slot& s = free_.front();
    const std::size_t bytes = item_bytes(item);
    kept_input_(item);
    if constexpr (has_mark_v<T>) {
      if (marked_item<T> || order_ == order::arrival) s.mark = detail::mark_of_item(item);
      if (order_ == order::arrival) expect(s.mark);
    }
    if constexpr (marked_item<T>) {
      if (s.mark.padding) return take_empty(s, std::move(item), bytes);
    }
    s.place.note(item);
    task<void> work = run_one(*this, s, std::optional<T>(std::move(item)));
    s.work = spawned<void>(here_, std::move(work));
    // While a task runs, its input and a result as large as the largest so far are counted.
    s.bytes = bytes + largest_result_;
    window_.add(s.bytes);
    free_.pop();
    if (order_ == order::ordered) queue_.push(s);
    if (!window_.room()) {
      const bool by_number = window_.full_by_number();
      stage_record::add(here_.stage(), by_number ? &stage_record::full_by_number : &stage_record::full_by_bytes, 1);
    }
  }
  void source_ended() noexcept { progress_.notify(); }

  /// An empty entry, of which no call is started.
  void take_empty(slot& s, T&& item, std::size_t bytes) {
    try {
      if constexpr (std::is_same_v<U, T> && !has_in_place_of<F, U>) {
        s.result.emplace(std::move(item));
      } else {
        s.result.emplace(detail::entry_in_place<U>(f_, s.mark, "map_concurrent"));
      }
    } catch (...) {
      s.error = std::current_exception();
    }
    s.bytes = bytes;
    window_.add(bytes);
    free_.pop();
    s.done = true;
    if (order_ == order::arrival) {
      arrived(s);
    } else {
      queue_.push(s);
    }
    if (has_result()) progress_.notify();
  }

  /// In order of arrival: an item with this mark has come.
  void expect(const epoch_mark& mark) {
    if (epochs_.empty() || epochs_.back().epoch != mark.epoch) epochs_.emplace_back().epoch = mark.epoch;
    ++epochs_.back().under_way;
    if constexpr (moves_place_v<U>) places_.came(mark);
  }
  /// In order of arrival: its result has come.
  void arrived(slot& s) noexcept {
    if constexpr (!has_mark_v<T>) {
      queue_.push(s);
    } else {
      auto its = epochs_.begin();
      while (its->epoch != s.mark.epoch || its->under_way == 0) ++its;
      its->done.push(s);
      --its->under_way;
      for (;;) {
        arrivals& first = epochs_.front();
        while (!first.done.empty()) queue_.push(first.done.pop());
        if (first.under_way != 0 || epochs_.size() == 1) return;
        epochs_.pop_front();
      }
    }
  }

  static task<void> run_one(concurrent_calls& self, slot& mine, std::optional<T> item) {
    std::size_t bytes = 0;
    try {
      task<U> work = detail::call(self.f_, std::move(*item));
      U result = co_await std::move(work);
      self.kept_result_(result);
      mine.result.emplace(std::move(result));
      bytes = item_bytes(*mine.result);  // the user's function: its exception is a failure of this item
    } catch (...) {
      mine.result.reset();
      mine.error = mine.place.completed();
    }
    item.reset();  // the frame stays until the result is taken
    self.finish(mine, bytes);
  }
  void finish(slot& s, std::size_t bytes) noexcept {
    if (s.error && !continues_) pump_.stop();
    window_.resize(s.bytes, bytes);
    s.bytes = bytes;
    if (bytes > largest_result_) {
      largest_result_ = bytes;
      window_.expect(bytes);
    }
    s.done = true;
    if (order_ == order::arrival) arrived(s);
    if (has_result()) progress_.notify();
    window_.freed().notify();
  }

  const generator_context<U> here_;
  F& f_;
  const order order_;
  const bool continues_;
  compactor<T> kept_input_;
  compactor<U> kept_result_;
  delivery_window<U> window_;
  std::size_t largest_result_ = 0;
  notifier progress_;
  std::deque<slot> slots_;
  wait_list<slot> queue_;        // in the order of delivery
  std::deque<arrivals> epochs_;  // in order of arrival, of items with marks
  places_in_turn places_;        // likewise
  wait_list<slot> free_;
  pump<T, concurrent_calls> pump_{window_.freed()};  // declared last: destroyed first, then the tasks in the slots
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// See map_concurrent().
struct map_concurrent_options {
  std::size_t limit = 0;  ///< items worked on or waiting to be taken; 0: twice the pool's threads, 16 for tasks
  millrace::order order = millrace::order::ordered;
  pool_ref on = nullptr;  ///< the pool for a plain function, which must outlive the pipeline; none: the runtime's
  std::size_t bytes = 256 * MiB;  ///< of the items worked on and the results waiting, for types with byte_size()
  failure_policy failures = {};   ///< the treatment of items for which the function throws
};

namespace detail {

/// A plain function as one that returns a task: each call is a job of the pool. Jobs share the function, so a job that
/// has begun may outlive the pipeline.
template <class U, class T, class F>
class pooled {
 public:
  pooled(F f, cpu_pool::share pool) : f_(std::make_shared<const F>(std::move(f))), pool_(std::move(pool)) {}
  /// Before the first item: work for which no pool was given goes to the runtime's.
  void choose_pool(const coroutine_context& here, map_concurrent_options& options, bool own_limit) {
    if constexpr (requires(const F& f) { F(f.within(std::size_t())); }) {
      const std::size_t largest = here.run().budget().largest_item();
      if (largest != run_budget::unlimited) f_ = std::make_shared<const F>(f_->within(largest));
    }
    if (pool_) return tell_pool(here, pool_, true, options.limit);
    pool_ = cpu_pool::share::of(here.runtime());
    if (!pool_) {
      throw configuration_error("map_concurrent: a plain function needs a pool to run on: .on = pool, or a runtime");
    }
    const std::size_t enough = 2 * std::size_t(pool_.threads());
    if (!own_limit && enough < options.limit) options.limit = enough;
    tell_pool(here, pool_, false, options.limit);
  }
  task<U> operator()(T item) const { return run(f_, pool_, std::move(item)); }
  U in_place_of(const epoch_mark& mark) const
    requires has_in_place_of<F, U>
  {
    return f_->in_place_of(mark);
  }

 private:
  static task<U> run(std::shared_ptr<const F> f, cpu_pool::share pool, T item) {
    auto job = [function = std::move(f), input = std::move(item)]() mutable -> U {
      return detail::call(*function, std::move(input));
    };
    U result = co_await pool.run(std::move(job));
    co_return result;
  }

  std::shared_ptr<const F> f_;
  cpu_pool::share pool_;
};

template <class U, class T, class F>
async_generator<U> map_concurrent_items(async_generator<T> source, F f, map_concurrent_options options, bool own_limit,
                                        const char* name) {
  const generator_context<U> here = co_await this_generator<U>();
  if constexpr (requires { f.choose_pool(here, options, own_limit); }) {
    f.choose_pool(here, options, own_limit);
  }
  if (stage_record* const stage = here.stage()) stage->works_within(options.limit, options.bytes);
  failures bad(options.failures, here, name);
  concurrent_calls<U, T, F> calls(here, source, f, options.limit, options.bytes, options.order,
                                  options.failures.then == on_failure::skip);
  for (;;) {
    while (!calls.has_result() && !calls.ended()) co_await calls.wait();
    if (calls.ended()) {
      calls.rethrow();
      bad.finish();
      co_return;
    }
    calls.take_place();
    if (std::exception_ptr failure = calls.take_failure()) {
      if (!bad.forgive(std::move(failure), calls.place())) co_return;
      if constexpr (marked_item<T>) {
        if (calls.mark().placed()) {
          U empty = detail::entry_in_place<U>(f, calls.mark(), name);
          co_yield give(empty);
        }
      }
    } else {
      bad.succeeded();
      co_yield give(calls.yielding());
    }
    calls.pop();
  }
}

}  // namespace detail

/// Returned by map_concurrent().
template <class F>
class map_concurrent_stage : public detail::library_stage {
 public:
  /// `name`: of the stage that it is, or is a part of; a literal.
  map_concurrent_stage(F f, map_concurrent_options options, const char* name = "map_concurrent")
      : f_(std::move(f)), options_(options), own_limit_(options.limit != 0), name_(name) {
    if (own_limit_ && options_.limit > 1'000'000) {
      throw configuration_error("map_concurrent: .limit is beyond a million");
    }
    if (options_.on != nullptr) pool_ = cpu_pool::share(*options_.on);
  }

  /// For the compiler's message: why it does not take items of type T.
  template <class T>
  static constexpr void explain() {
    detail::explain_call<F&, T>();
    static_assert(!detail::callable_with<F&, T> || detail::maps<F&, T>,
                  "the function given to map_concurrent returns nothing: it must return the next stage's item "
                  "(filter(f) leaves items out, "
                  "flat_map(f) makes several of one)");
  }

  template <class T>
    requires detail::maps<F&, T>
  auto operator()(async_generator<T> source) && {
    using result = detail::mapped_t<F&, T>;
    if constexpr (detail::is_task_v<detail::call_result_t<F&, T>>) {
      if (options_.on != nullptr) {
        throw configuration_error("map_concurrent: .on is for plain functions, this one returns a task");
      }
      if (!own_limit_) options_.limit = 16;
      return declare<T, result>(
          detail::map_concurrent_items<result, T, F>(std::move(source), std::move(f_), options_, own_limit_, name_));
    } else if constexpr (!detail::maps<const F&, T>) {
      static_assert(detail::never_v<F>,
                    "map_concurrent calls a plain function on several threads at once: it must be callable when const "
                    "(a lambda that is not mutable)");
      return detail::refused();
    } else {
      // A runtime's pool is not known yet; unless configured otherwise it has a thread for each core.
      if (!own_limit_) {
        const unsigned threads = options_.on != nullptr ? options_.on->threads() : cpu_pool::usable_cores();
        options_.limit = 2 * std::size_t(threads);
      }
      using pooled = detail::pooled<result, T, F>;
      return declare<T, result>(detail::map_concurrent_items<result, T, pooled>(
          std::move(source), pooled(std::move(f_), std::move(pool_)), options_, own_limit_, name_));
    }
  }

 private:
  template <class T, class U>
  stream<U> declare(stream<U> made) const {
    made = detail::declare_mapped<T, F>(std::move(made).named(name_, ".limit"), options_.failures);
    if (options_.order == order::arrival) made = detail::declare_reordered(std::move(made));
    return std::move(made).bounded(options_.limit, detail::declared_bytes<T, U>(options_.limit, options_.bytes));
  }

  F f_;
  map_concurrent_options options_;
  const bool own_limit_;
  const char* const name_;
  cpu_pool::share pool_;  // of options_.on, which may have ended when the pipeline runs
};

/// A stage that yields `f(item)` for each item, working on several at once: `samples | map_concurrent(decode)`.
///
/// A plain `f` runs on the threads of the runtime's pool, or of the pool `.on`; it is called on several at once and
/// must be callable when const. An `f` that returns a task is started on the loop, without a pool. Items come out in
/// the order of their inputs unless `.order` says otherwise. In order of arrival, too, all items of an epoch come
/// before those of the next one, and their marks keep their order, as after shuffle().
///
/// Concurrency: once the first item has been asked for, a task pulls the source and starts calls, whether or not the
/// consumer asks. Bound: `limit` items and `bytes` bytes, from the start of a call until the consumer has taken its
/// result. While a call runs, the bytes of its item and those of the largest result so far are counted, so the bound in
/// bytes is exceeded only by results larger than every one before. Cancellation: dropping the generator drops every
/// task, and takes back jobs that no thread has begun; one that has begun runs to its end, on its own copies. Errors:
/// the first failure stops the pulling; in order, the results before the failed item are yielded, then its exception is
/// thrown, unless `.failures` forgives it; an error without a place is given that of the item. Throws
/// configuration_error if a pool is given for a function that returns a task; in the pipeline, configuration_error
/// if a plain function finds no pool (on a bare loop), and usage_error if the pool has ended.
///
/// `f` is not called for empty entries of epochs() (epoch_mark::padding): an empty entry of its result's type takes the
/// place, and that of an item that is skipped, so that batches keep their number and sizes (see data/item.hpp). run()
/// refuses a result that cannot be one.
template <class F>
map_concurrent_stage<F> map_concurrent(F f, map_concurrent_options options = {}) {
  return map_concurrent_stage<F>(std::move(f), options);
}

}  // namespace millrace
