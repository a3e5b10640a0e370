// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <utility>

#include <millrace/flow/detail/generators.hpp>
#include <millrace/flow/detail/zipped.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace {

namespace detail {

template <class... Ts>
stream<std::tuple<Ts...>> make_zip(const char* name, bool equal, stream<Ts>... sources) {
  stream_description all;
  std::tuple<async_generator<Ts>...> together{joined<Ts>(all, std::move(sources))...};  // braces: in this order
  stream<std::tuple<Ts...>> rows(zipped<Ts...>(std::move(together), equal));
  return stream_door::continued(std::move(all), std::move(rows).named(name));
}

}  // namespace detail

/// A stream of tuples, one item of each source in each: `zip(images, labels)`. It ends with the source that ends
/// first; what the sources before it gave for that row is dropped.
///
/// The sources are asked one after the other: where they should work at the same time, give each a buffer(). What a
/// source throws is thrown.
template <class... Sources>
  requires(sizeof...(Sources) > 0 && (detail::is_source_v<Sources> && ...))
stream<std::tuple<typename Sources::value_type...>> zip(Sources... sources) {
  return detail::make_zip<typename Sources::value_type...>("zip", false, std::move(sources)...);
}

/// The same for sources that must have the same number of items: throws `error` when one ends before the others.
template <class... Sources>
  requires(sizeof...(Sources) > 0 && (detail::is_source_v<Sources> && ...))
stream<std::tuple<typename Sources::value_type...>> zip_equal(Sources... sources) {
  return detail::make_zip<typename Sources::value_type...>("zip_equal", true, std::move(sources)...);
}

}  // namespace millrace
