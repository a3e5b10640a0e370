// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

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

/// A stream of everything from the first source, then everything from the second, and so on. A source is asked when
/// the one before it has ended, and dropped when it has ended itself.
template <class Source>
  requires detail::is_source_v<Source>
stream<typename Source::value_type> concat(std::vector<Source>&& sources) {
  using T = typename Source::value_type;
  detail::stream_description all;
  stream<T> made(detail::concatenated<T>(detail::all_joined(all, std::move(sources))));
  return detail::stream_door::continued(std::move(all), std::move(made).named("concat"));
}
template <class First, class... More>
  requires detail::alike_sources<First, More...>
stream<typename First::value_type> concat(First&& first, More&&... more) {
  return concat(detail::in_a_vector(std::move(first), std::move(more)...));
}
/// For the compiler's message: anything else.
template <class First, class... More>
  requires(detail::is_source_v<std::remove_cvref_t<First>> && !detail::alike_sources<First, More...>)
detail::refused concat(First&&, More&&...) {
  detail::explain_sources<First, More...>();
  return detail::refused();
}
template <class Source>
  requires detail::is_source_v<Source>
detail::refused concat(const std::vector<Source>&) {
  static_assert(detail::never_v<Source>, "concat consumes its sources: write concat(std::move(sources))");
  return detail::refused();
}

}  // namespace millrace
