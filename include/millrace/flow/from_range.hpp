// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include <millrace/flow/flat_map.hpp>

namespace millrace {

namespace detail {

template <class T, class Range>
async_generator<T> range_items(Range range) {
  for (auto&& element : range) {
    T item(std::move(element));
    co_yield give(item);
  }
}

}  // namespace detail

/// A stream of the elements of a container, which it takes over and moves from: `from_range(std::move(urls))`.
template <class Range>
  requires(!std::is_reference_v<Range> && detail::plain_range<Range>)
auto from_range(Range range) {
  using element = detail::element_t<Range>;
  return stream<element>(detail::range_items<element, Range>(std::move(range))).named("from_range");
}

}  // namespace millrace
