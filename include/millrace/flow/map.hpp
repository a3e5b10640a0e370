// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/item.hpp>
#include <millrace/flow/detail/places.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// An empty entry, of which no function is called: the same one, or one of the type that the function returns.
template <class U, class T, class F>
U mapped_empty(T& item, const F& f) {
  if constexpr (std::is_same_v<U, T> && !has_in_place_of<F, U>) {
    return U(std::move(item));
  } else {
    return detail::entry_in_place<U>(f, detail::mark_of_item(item), "map");
  }
}

template <class U, class T, class F>
U map_one(T& item, F& f, item_place& place) {
  if (detail::is_empty_entry(item)) return detail::mapped_empty<U>(item, f);
  place.note(item);
  T own(std::move(item));  // the item is not held while the consumer works
  if constexpr (!has_place<T>) {
    return detail::call(f, std::move(own));
  } else {
    try {
      return detail::call(f, std::move(own));
    } catch (...) {
      std::rethrow_exception(place.completed());
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

/// Like map_items(), with a function that may wait.
template <class U, class T, class F>
async_generator<U> map_by_task(async_generator<T> source, F f) {
  item_place place;
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) co_return;
    std::optional<U> result;
    if (detail::is_empty_entry(*item)) {
      result.emplace(detail::mapped_empty<U>(*item, f));
      item.reset();
      co_yield give(*result);
      continue;
    }
    place.note(*item);
    try {
      task<U> work = detail::call(f, std::move(*item));
      U made = co_await std::move(work);
      result.emplace(std::move(made));
    } catch (...) {
      std::rethrow_exception(place.completed());
    }
    item.reset();  // the item is not held while the consumer works
    co_yield give(*result);
  }
}

/// Like map_items(), with a policy that tolerates failures.
template <class U, class T, class F>
async_generator<U> try_map_items(async_generator<T> source, F f, failure_policy policy) {
  const coroutine_context here = co_await this_context();
  failures bad(policy, here, "map");
  item_place place;
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) break;
    std::optional<U> result;
    std::exception_ptr failure;
    if (detail::is_empty_entry(*item)) {
      result.emplace(detail::mapped_empty<U>(*item, f));
      item.reset();
      co_yield give(*result);
      continue;
    }
    place.note(*item);
    const epoch_mark mark = detail::mark_of_item(*item);
    try {
      if constexpr (is_task_v<call_result_t<F&, T>>) {
        task<U> work = detail::call(f, std::move(*item));
        U made = co_await std::move(work);
        result.emplace(std::move(made));
      } else {
        result.emplace(detail::call(f, std::move(*item)));
      }
    } catch (...) {
      failure = place.completed();
    }
    item.reset();
    if (failure) {
      if (!bad.forgive(std::move(failure), place)) co_return;
      if constexpr (marked_item<T>) {
        if (mark.placed()) {
          U empty = detail::entry_in_place<U>(f, mark, "map");
          co_yield give(empty);
        }
      }
      continue;
    }
    bad.succeeded();
    co_yield give(*result);
  }
  bad.finish();
}

}  // namespace detail

/// Returned by map().
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
        "the function given to map returns nothing: it must return the next stage's item (filter(f) leaves items out, "
        "flat_map(f) makes several of one)");
  }

  template <class T>
    requires detail::maps<F&, T>
  auto operator()(async_generator<T> source) && {
    using result = detail::mapped_t<F&, T>;
    if (failures_.then == on_failure::rethrow) {
      if constexpr (detail::is_task_v<detail::call_result_t<F&, T>>) {
        return declare<T, result>(detail::map_by_task<result, T, F>(std::move(source), std::move(f_)));
      } else {
        return declare<T, result>(detail::map_items<result, T, F>(std::move(source), std::move(f_)));
      }
    }
    return declare<T, result>(detail::try_map_items<result, T, F>(std::move(source), std::move(f_), failures_));
  }

 private:
  template <class T, class U>
  stream<U> declare(stream<U> made) const {
    return detail::declare_mapped<T, F>(std::move(made).named("map"), failures_);
  }

  F f_;
  failure_policy failures_;
};

/// A stage that yields `f(item)` for each item, in order, one at a time: `source | map(decode)`.
///
/// `f` takes the item by value, by reference to const or by rvalue reference; a pointer to a member works too. It may
/// return a task, which is awaited before the next item is asked for. It runs on the loop thread: for work of more than
/// some microseconds see map_concurrent. The stage owns `f`, holds one item, and allocates nothing per item. An
/// exception of `f` ends the stream, unless `failures` tolerates it; an error without a place gets that of the item
/// (failure_policy.hpp). The result must not refer to its item, which is gone before the consumer runs.
///
/// `f` is not called for empty entries of epochs() (epoch_mark::padding): an empty entry of its result's type takes the
/// place, and that of an item that `failures` skips (see data/item.hpp). run() refuses a result that cannot be one.
template <class F>
map_stage<F> map(F f, failure_policy failures = {}) {
  return map_stage<F>(std::move(f), failures);
}

namespace detail {

/// Destroys the contents of an item now: the generator keeps the item itself until it makes the next one.
template <class T>
void let_go(T& item) {
  if constexpr (!std::is_trivially_copyable_v<T>) static_cast<void>(T(std::move(item)));
}

template <class T>
[[noreturn]] void rethrow_placed(const T& item) {
  item_place place;
  place.note(item);
  std::rethrow_exception(place.completed());
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
    if (detail::is_empty_entry(*item) || detail::wants(predicate, std::as_const(*item)) || detail::leave_out(*item)) {
      co_yield give(*item);
    } else {
      detail::let_go(*item);
    }
  }
}

/// Like filter_items(), with a predicate that may wait.
template <class T, class F>
async_generator<T> filter_by_task(async_generator<T> source, F predicate) {
  while (T* item = co_await source.next_in_place()) {
    bool wanted = detail::is_empty_entry(*item);
    if (!wanted) try {
      auto answer = detail::call(predicate, std::as_const(*item));
      wanted = static_cast<bool>(co_await std::move(answer));
    } catch (...) {
      detail::rethrow_placed(std::as_const(*item));
    }  // the task, and perhaps its copy of the item, is not held while the consumer works
    if (!wanted && !detail::leave_out(*item)) {
      detail::let_go(*item);
      continue;
    }
    co_yield give(*item);
  }
}

}  // namespace detail

/// Returned by filter().
template <class F>
class filter_stage : public detail::library_stage {
 public:
  explicit filter_stage(F predicate) : predicate_(std::move(predicate)) {}

  /// For the compiler's message: why it does not take items of type T.
  template <class T>
  static constexpr void explain() {
    detail::explain_call<F&, const T&>();
    static_assert(!detail::callable_with<F&, const T&> || detail::tests<F&, const T&>,
                  "the function given to filter must return a bool: whether the item is kept");
  }

  template <class T>
    requires detail::tests<F&, const T&>
  stream<T> operator()(async_generator<T> source) && {
    if constexpr (detail::is_task_v<detail::call_result_t<F&, const T&>>) {
      return declare<T>(detail::filter_by_task<T, F>(std::move(source), std::move(predicate_)));
    } else {
      return declare<T>(detail::filter_items<T, F>(std::move(source), std::move(predicate_)));
    }
  }

 private:
  template <class T>
  static stream<T> declare(stream<T> made) {
    made = std::move(made).named("filter");
    if constexpr (detail::keeps_place_v<T>) return std::move(made).declares(place_effect::makes_empty);
    return std::move(made).declares(place_effect::loses, 0, detail::cannot_leave_out);
  }

  F predicate_;
};

/// A stage that yields the items for which `predicate(const item&)` is true and drops the others.
///
/// The predicate may return a task<bool>, which is awaited. It runs on the loop thread. The stage owns it, holds one
/// item, and allocates nothing per item. An exception of the predicate ends the stream; an error without a place is
/// given that of the item.
///
/// An item of epochs() keeps its place: it is replaced by an empty entry, of weight 0 in its batch, so that all ranks
/// have equally many batches and states hold; of a vector, all its items are. The predicate is not called for empty
/// entries. run() refuses items of a type that cannot be one (see data/item.hpp).
template <class F>
filter_stage<F> filter(F predicate) {
  return filter_stage<F>(std::move(predicate));
}

namespace detail {

template <class T>
async_generator<T> take_items(async_generator<T> source, std::uint64_t count) {
  while (count > 0) {
    std::optional<T> item = co_await source.next();
    if (!item) co_return;
    if (--count == 0) source = async_generator<T>();
    co_yield give(*item);
  }
}

}  // namespace detail

/// Returned by take().
class take_stage : public detail::library_stage {
 public:
  explicit take_stage(std::uint64_t count) noexcept : count_(count) {}

  template <class T>
  stream<T> operator()(async_generator<T> source) && {
    return stream<T>(detail::take_items<T>(std::move(source), count_))
        .named("take")
        .declares(place_effect::stateless, 0, detail::no_state_recounted);
  }

 private:
  std::uint64_t count_;
};

/// A stage that yields the first `count` items. With the last one it drops everything upstream, including work in
/// flight; it never requests an item that it would not yield. It counts from where the run begins: after epochs() there
/// is no state, since a resume would count anew (pipeline_run::stop_after() ends a training that is to go on later).
inline take_stage take(std::uint64_t count) noexcept { return take_stage(count); }

}  // namespace millrace
