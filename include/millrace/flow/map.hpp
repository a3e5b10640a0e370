// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>

#include <millrace/flow/pipe.hpp>

namespace millrace {

namespace detail {

template <class U, class T, class F>
async_generator<U> map_items(async_generator<T> source, F f) {
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) co_return;
    if constexpr (is_task_v<call_result_t<F&, T>>) {
      task<U> work = detail::call(f, std::move(*item));
      U result = co_await std::move(work);
      work = task<U>();
      item.reset();  // what f has used up is not held while the consumer works
      co_yield give(result);
    } else {
      U result = detail::call(f, std::move(*item));
      item.reset();
      co_yield give(result);
    }
  }
}

}  // namespace detail

/// What map() returns.
template <class F>
class map_stage : public detail::library_stage {
 public:
  explicit map_stage(F f) : f_(std::move(f)) {}

  template <class T>
    requires detail::maps<F&, T>
  auto operator()(async_generator<T> source) && {
    using result = detail::mapped_t<F&, T>;
    return async_generator<result>(detail::map_items<result, T, F>(std::move(source), std::move(f_)).named("map"));
  }

 private:
  F f_;
};

/// A stage that hands on `f(item)` for each item, in order, one at a time: `source | map(decode)`.
///
/// `f` takes the item by value, by reference to const or by rvalue reference; a pointer to a member works too. It may
/// return a task, which is awaited before the next item is asked for. It runs on the loop thread: for work of more than
/// some microseconds see map_concurrent. The stage owns `f`, holds one item, and allocates nothing per item. What `f`
/// throws ends the stream.
template <class F>
map_stage<F> map(F f) {
  return map_stage<F>(std::move(f));
}

}  // namespace millrace
