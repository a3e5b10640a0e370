// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/runtime_parts.hpp>
#include <millrace/flow/detail/concurrent.hpp>
#include <millrace/flow/detail/failures.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/order.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/cpu_pool.hpp>

namespace millrace {

/// See map_concurrent().
struct map_concurrent_options {
  std::size_t limit = 0;  ///< items worked on or waiting to be taken; 0: twice the pool's threads, 16 for tasks
  millrace::order order = millrace::order::ordered;
  pool_ref on = nullptr;  ///< the pool for a plain function, which must outlive the pipeline; none: the runtime's
  std::size_t bytes = 256 * MiB;  ///< of the items worked on and the results waiting, for types with byte_size()
  failure_policy failures = {};   ///< what happens to items for which the function throws
};

namespace detail {

/// A plain function as one that returns a task: each call is a job of the pool. The job has a share in the function, so
/// that one that has begun may outlive the pipeline.
template <class U, class T, class F>
class pooled {
 public:
  pooled(F f, cpu_pool::share pool) : f_(std::make_shared<const F>(std::move(f))), pool_(std::move(pool)) {}
  /// Before the first item: work for which no pool was given goes to the runtime's.
  void choose_pool(executor& ex, map_concurrent_options& options, bool own_limit) {
    if (pool_) return;
    if (ex.runtime() == nullptr) {
      throw configuration_error("map_concurrent: a plain function needs a pool to run on: .on = pool, or a runtime");
    }
    cpu_pool& pool = ex.runtime()->pool();
    pool_ = cpu_pool::share(pool);
    const std::size_t enough = 2 * std::size_t(pool.threads());
    if (!own_limit && enough < options.limit) options.limit = enough;
  }
  task<U> operator()(T item) const { return run(f_, pool_, std::move(item)); }
  U in_place_of(const epoch_mark& mark) const
    requires fills_places<F, U>
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
async_generator<U> map_concurrent_items(async_generator<T> source, F f, map_concurrent_options options,
                                        bool own_limit) {
  executor& ex = co_await this_executor();
  if constexpr (requires { f.choose_pool(ex, options, own_limit); }) f.choose_pool(ex, options, own_limit);
  stage_record* const stage = co_await this_stage();
  const delivery<U> yielded = co_await this_delivery<U>();
  failures bad(options.failures, ex, stage, "map_concurrent");
  concurrent<U, T, F> work(source, f, options.limit, options.bytes, options.order, yielded,
                           options.failures.then == on_failure::skip);
  work.start(ex, stage);
  for (;;) {
    while (!work.has_result() && !work.ended()) co_await work.wait();
    if (work.ended()) {
      work.rethrow();
      bad.finish();
      co_return;
    }
    if (std::exception_ptr failure = work.take_failure()) {
      if (!bad.forgive(std::move(failure), work.place())) co_return;
      if constexpr (fills_places<F, U>) {
        epoch_mark mark = work.mark();
        mark.padding = true;
        if (mark.placed()) {
          U hole = f.in_place_of(mark);
          co_yield give(hole);
        }
      }
    } else {
      bad.succeeded();
      co_yield give(work.hand_over());
    }
    work.pop();
  }
}

}  // namespace detail

/// What map_concurrent() returns.
template <class F>
class map_concurrent_stage : public detail::library_stage {
 public:
  map_concurrent_stage(F f, map_concurrent_options options)
      : f_(std::move(f)), options_(options), own_limit_(options.limit != 0) {
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
                  "the function given to map_concurrent returns nothing: it must return the item that goes on "
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
          detail::map_concurrent_items<result, T, F>(std::move(source), std::move(f_), options_, own_limit_));
    } else if constexpr (!detail::maps<const F&, T>) {
      static_assert(detail::never_v<F>,
                    "map_concurrent calls a plain function on several threads at once: it must be callable when const "
                    "(a lambda that is not mutable)");
      return detail::refused();
    } else {
      // A runtime's pool is not known yet: it has no more threads than there are cores, unless told to.
      if (!own_limit_) {
        const unsigned threads = options_.on != nullptr ? options_.on->threads() : cpu_pool::usable_cores();
        options_.limit = 2 * std::size_t(threads);
      }
      using pooled = detail::pooled<result, T, F>;
      return declare<T, result>(detail::map_concurrent_items<result, T, pooled>(
          std::move(source), pooled(std::move(f_), std::move(pool_)), options_, own_limit_));
    }
  }

 private:
  template <class T, class U>
  stream<U> declare(stream<U> made) const {
    return std::move(made)
        .named("map_concurrent", "raise its .limit")
        .bounded(options_.limit, detail::declared_bytes<T, U>(options_.limit, options_.bytes));
  }

  F f_;
  map_concurrent_options options_;
  const bool own_limit_;
  cpu_pool::share pool_;  // of options_.on, which may have ended when the pipeline runs
};

/// A stage that hands on `f(item)` for each item, working on several at once:
/// `samples | map_concurrent(decode)`.
///
/// A plain `f` runs on the threads of the runtime's pool, or of the pool `.on`; it is called on several at once and
/// must be callable when const. An `f` that returns a task is started on the loop, without a pool. Items come out in
/// the order of their inputs unless `.order` says otherwise.
///
/// Concurrency: a task pulls the source and starts work, whether or not the consumer asks, once the first item has been
/// asked for. Bound: `limit` items and `bytes` bytes, from the start of the work until the consumer has taken the
/// result; while an item is worked on, its bytes and those of the largest result so far are counted, so the bound in
/// bytes is exceeded only by results larger than every one before. Cancellation: dropping the generator drops every
/// task, and takes back jobs that no thread has begun; one that has begun runs to its end, on its own copies. Errors:
/// the first failure stops the pulling; in order, the results before the failed item are handed on, then its exception
/// is thrown, unless `.failures` forgives it; an error without a place is given that of the item. Throws
/// configuration_error when a pool is given for a function that returns a task; in the pipeline, configuration_error
/// where a plain function finds no pool (on a bare loop), and usage_error when the pool has ended.
///
/// An item that is left out leaves its place to the next one. Where it has a place of its own (epoch_mark::placed()),
/// and the function is an object with a member `in_place_of(const epoch_mark&)`, what that returns is handed on in its
/// place: a result of weight 0 that has this mark, so that batches keep their number and sizes.
template <class F>
map_concurrent_stage<F> map_concurrent(F f, map_concurrent_options options = {}) {
  return map_concurrent_stage<F>(std::move(f), options);
}

}  // namespace millrace
