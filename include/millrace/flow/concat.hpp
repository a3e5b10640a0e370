// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
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
async_generator<T> concat(std::vector<async_generator<T>>&& sources) {
  std::vector<stage_bounds> bounds = detail::take_all_bounds(sources);
  return detail::concatenated<T>(std::move(sources)).named("concat").inherit(std::move(bounds));
}
template <class T, class... More>
  requires(std::is_same_v<More, async_generator<T>> && ...)
async_generator<T> concat(async_generator<T>&& first, More&&... more) {
  return concat(detail::generators(std::move(first), std::move(more)...));
}
/// For the compiler's message: anything else.
template <class First, class... More>
  requires(detail::is_generator_v<std::remove_cvref_t<First>>)
detail::refused concat(First&&, More&&...) {
  detail::explain_sources<First, More...>();
  return detail::refused();
}
template <class T>
detail::refused concat(const std::vector<async_generator<T>>&) {
  static_assert(detail::never_v<T>, "concat consumes its sources: write concat(std::move(sources))");
  return detail::refused();
}

}  // namespace millrace
