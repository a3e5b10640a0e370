// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/flow/detail/generators.hpp>

namespace millrace {

namespace detail {

template <class T>
async_generator<T> concatenated(std::vector<async_generator<T>> sources) {
  for (async_generator<T>& source : sources) {
    for (;;) {
      std::optional<T> item = co_await source.next();
      if (!item) break;
      co_yield give(*item);
    }
    source = async_generator<T>();
  }
}

}  // namespace detail

/// A generator of everything from the first source, then everything from the second, and so on. A source is asked when
/// the one before it has ended, and dropped when it has ended itself.
template <class T>
async_generator<T> concat(std::vector<async_generator<T>> sources) {
  std::vector<stage_bounds> bounds = detail::take_all_bounds(sources);
  return detail::concatenated<T>(std::move(sources)).named("concat").inherit(std::move(bounds));
}
template <class T, class... More>
async_generator<T> concat(async_generator<T> first, More... more) {
  return concat(detail::generators(std::move(first), std::move(more)...));
}

}  // namespace millrace
