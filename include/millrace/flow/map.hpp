// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/flow/detail/failures.hpp>
#include <millrace/flow/detail/item_place.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/pipe.hpp>

namespace millrace {

namespace detail {

template <class U, class T, class F>
U map_one(T& item, F& f, item_place& place) {
  place.note(item);
  T own(std::move(item));  // what f has used up is not held while the consumer works
  if constexpr (!has_place<T>) {
    return detail::call(f, std::move(own));
  } else {
    try {
      return detail::call(f, std::move(own));
    } catch (...) {
      place.complete();
      throw;
    }
  }
}

template <class U, class T, class F>
async_generator<U> map_items(async_generator<T> source, F f) {
  item_place place;
  while (T* item = co_await source.next_in_place()) {
    U result = detail::map_one<U>(*item, f, place);
    co_yield give(result);
  }
}

/// The same with a function that may wait.
template <class U, class T, class F>
async_generator<U> map_by_task(async_generator<T> source, F f) {
  item_place place;
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) co_return;
    place.note(*item);
    std::optional<U> result;
    try {
      task<U> work = detail::call(f, std::move(*item));
      U made = co_await std::move(work);
      result.emplace(std::move(made));
    } catch (...) {
      place.complete();
      throw;
    }
    item.reset();  // what f has used up is not held while the consumer works
    co_yield give(*result);
  }
}

/// The same under a policy that forgives.
template <class U, class T, class F>
async_generator<U> try_map_items(async_generator<T> source, F f, failure_policy policy) {
  executor& ex = co_await this_executor();
  stage_record* const stage = co_await this_stage();
  failures bad(policy, ex, stage, "map");
  item_place place;
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) break;
    place.note(*item);
    std::optional<U> result;
    std::exception_ptr failure;
    try {
      if constexpr (is_task_v<call_result_t<F&, T>>) {
        task<U> work = detail::call(f, std::move(*item));
        U made = co_await std::move(work);
        result.emplace(std::move(made));
      } else {
        result.emplace(detail::call(f, std::move(*item)));
      }
    } catch (...) {
      place.complete();
      failure = std::current_exception();
    }
    item.reset();
    if (failure) {
      if (!bad.forgive(std::move(failure), place)) co_return;
      continue;
    }
    bad.succeeded();
    co_yield give(*result);
  }
  bad.finish();
}

}  // namespace detail

/// What map() returns.
template <class F>
class map_stage : public detail::library_stage {
 public:
  explicit map_stage(F f, failure_policy failures = failure_policy()) : f_(std::move(f)), failures_(failures) {}

  /// For the compiler's message: why it does not take items of type T.
  template <class T>
  static constexpr void explain() {
    detail::explain_call<F&, T>();
    static_assert(
        !detail::callable_with<F&, T> || detail::maps<F&, T>,
        "the function given to map returns nothing: it must return the item that goes on (filter(f) leaves items out, "
        "flat_map(f) makes several of one)");
  }

  template <class T>
    requires detail::maps<F&, T>
  auto operator()(async_generator<T> source) && {
    using result = detail::mapped_t<F&, T>;
    if (failures_.then == on_failure::rethrow) {
      if constexpr (detail::is_task_v<detail::call_result_t<F&, T>>) {
        return stream<result>(detail::map_by_task<result, T, F>(std::move(source), std::move(f_))).named("map");
      } else {
        return stream<result>(detail::map_items<result, T, F>(std::move(source), std::move(f_))).named("map");
      }
    }
    return stream<result>(detail::try_map_items<result, T, F>(std::move(source), std::move(f_), failures_))
        .named("map");
  }

 private:
  F f_;
  failure_policy failures_;
};

/// A stage that hands on `f(item)` for each item, in order, one at a time: `source | map(decode)`.
///
/// `f` takes the item by value, by reference to const or by rvalue reference; a pointer to a member works too. It may
/// return a task, which is awaited before the next item is asked for. It runs on the loop thread: for work of more than
/// some microseconds see map_concurrent. The stage owns `f`, holds one item, and allocates nothing per item. What `f`
/// throws ends the stream, unless `failures` forgives it; an error without a place is given that of the item
/// (failure_policy.hpp). What it returns must not refer to its item, which is gone before the consumer runs.
template <class F>
map_stage<F> map(F f, failure_policy failures = {}) {
  return map_stage<F>(std::move(f), failures);
}

}  // namespace millrace
