// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/coro/task.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

template <class T, class Range>
async_generator<T> range_items(Range range) {
  for (auto&& element : range) {
    T item(std::move(element));
    co_yield give(item);
  }
}

}  // namespace detail

/// A stream of the elements of a container, which it owns and moves from: `from_range(std::move(urls))`.
template <class Range>
  requires(!std::is_reference_v<Range> && detail::plain_range<Range>)
auto from_range(Range range) {
  using element = detail::element_t<Range>;
  return stream<element>(detail::range_items<element, Range>(std::move(range))).named("from_range");
}

namespace detail {

template <class T, class F>
async_generator<T> generated_items(F f) {
  for (;;) {
    if constexpr (is_task_v<std::remove_cvref_t<std::invoke_result_t<F&>>>) {
      task<std::optional<T>> work = f();
      std::optional<T> item = co_await std::move(work);
      work = task<std::optional<T>>();
      if (!item) co_return;
      co_yield give(*item);
    } else {
      std::optional<T> item = f();
      if (!item) co_return;
      co_yield give(*item);
    }
  }
}

}  // namespace detail

/// A stream of the results of `f()`, a std::optional<T> or a task of one, called for each item when it is asked for;
/// nullopt ends the stream, which owns `f`.
template <class F>
auto generate(F f) {
  using element = typename detail::awaited<std::remove_cvref_t<std::invoke_result_t<F&>>>::type::value_type;
  return stream<element>(detail::generated_items<element, F>(std::move(f))).named("generate");
}

namespace detail {

template <class Integer>
async_generator<Integer> count_up(Integer first, Integer last) {
  for (; first != last; ++first) {  // all that an Integer needs beside <
    Integer item = first;
    co_yield give(item);
  }
}

}  // namespace detail

/// A stream of first, first + 1, ... up to but not including `last`. Nothing when last <= first.
template <class Integer>
stream<Integer> iota(Integer first, Integer last) {
  return stream<Integer>(detail::count_up<Integer>(first, last < first ? first : last)).named("iota");
}

/// 0, 1, ... count - 1.
template <class Integer>
stream<Integer> iota(Integer count) {
  return iota<Integer>(Integer(0), count);
}

/// All remaining items of a stream, in memory: `std::vector<T> all = co_await collect(std::move(source));`. An error of
/// the stream is thrown and the items before it are dropped.
template <class Source>
  requires detail::is_source_v<Source>
task<std::vector<typename Source::value_type>> collect(Source source) {
  using T = typename Source::value_type;
  std::vector<T> all;
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) break;
    all.push_back(std::move(*item));
  }
  co_return all;
}

}  // namespace millrace
