// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include <millrace/flow/detail/item_place.hpp>
#include <millrace/flow/pipe.hpp>

namespace millrace {

namespace detail {

/// Ends what an item holds now: the generator keeps the item itself until it makes the next one.
template <class T>
void let_go(T& item) {
  if constexpr (!std::is_trivially_copyable_v<T>) static_cast<void>(T(std::move(item)));
}

template <class T>
[[noreturn]] void rethrow_placed(const T& item) {
  item_place place;
  place.note(item);
  place.complete();
  throw;
}

template <class T, class F>
bool wants(F& predicate, const T& item) {
  try {
    return static_cast<bool>(detail::call(predicate, item));
  } catch (...) {
    detail::rethrow_placed(item);
  }
}

template <class T, class F>
async_generator<T> filter_items(async_generator<T> source, F predicate) {
  while (T* item = co_await source.next_in_place()) {
    if (detail::wants(predicate, std::as_const(*item))) {
      co_yield give(*item);
    } else {
      detail::let_go(*item);
    }
  }
}

/// The same with a predicate that may wait.
template <class T, class F>
async_generator<T> filter_by_task(async_generator<T> source, F predicate) {
  while (T* item = co_await source.next_in_place()) {
    bool wanted = false;
    try {
      auto answer = detail::call(predicate, std::as_const(*item));
      wanted = static_cast<bool>(co_await std::move(answer));
    } catch (...) {
      detail::rethrow_placed(std::as_const(*item));
    }  // what the task held, a copy of the item perhaps, is not held while the consumer works
    if (!wanted) {
      detail::let_go(*item);
      continue;
    }
    co_yield give(*item);
  }
}

}  // namespace detail

/// What filter() returns.
template <class F>
class filter_stage : public detail::library_stage {
 public:
  explicit filter_stage(F predicate) : predicate_(std::move(predicate)) {}

  /// For the compiler's message: why it does not take items of type T.
  template <class T>
  static constexpr void explain() {
    detail::explain_call<F&, const T&>();
    static_assert(!detail::callable_with<F&, const T&> || detail::tests<F&, const T&>,
                  "the function given to filter must return a bool: whether the item goes on");
  }

  template <class T>
    requires detail::tests<F&, const T&>
  stream<T> operator()(async_generator<T> source) && {
    if constexpr (detail::is_task_v<detail::call_result_t<F&, const T&>>) {
      return stream<T>(detail::filter_by_task<T, F>(std::move(source), std::move(predicate_))).named("filter");
    } else {
      return stream<T>(detail::filter_items<T, F>(std::move(source), std::move(predicate_))).named("filter");
    }
  }

 private:
  F predicate_;
};

/// A stage that hands on the items for which `predicate(const item&)` is true and drops the others.
///
/// The predicate may return a task<bool>, which is awaited. It runs on the loop thread. The stage owns it, holds one
/// item, and allocates nothing per item. What the predicate throws ends the stream; an error without a place is given
/// that of the item.
template <class F>
filter_stage<F> filter(F predicate) {
  return filter_stage<F>(std::move(predicate));
}

}  // namespace millrace
