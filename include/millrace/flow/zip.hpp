// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include <millrace/flow/detail/zipped.hpp>

namespace millrace {

namespace detail {

template <class... Ts>
async_generator<std::tuple<Ts...>> make_zip(const char* name, bool equal, async_generator<Ts>... sources) {
  std::vector<stage_bounds> all;
  auto add = [&all](std::vector<stage_bounds> bounds) { all.insert(all.end(), bounds.begin(), bounds.end()); };
  (sources.numbered(), ...);
  (add(sources.take_bounds()), ...);
  std::tuple<async_generator<Ts>...> together(std::move(sources)...);
  return zipped<Ts...>(std::move(together), equal).named(name).inherit(std::move(all));
}

}  // namespace detail

/// A generator of tuples, one item of each source in each: `zip(images, labels)`. It ends with the source that ends
/// first; what the sources before it gave for that row is dropped.
///
/// The sources are asked one after the other: where they should work at the same time, give each a buffer(). What a
/// source throws is thrown.
template <class... Ts>
  requires(sizeof...(Ts) > 0)
async_generator<std::tuple<Ts...>> zip(async_generator<Ts>... sources) {
  return detail::make_zip<Ts...>("zip", false, std::move(sources)...);
}

/// The same for sources that must have the same number of items: throws `error` when one ends before the others.
template <class... Ts>
  requires(sizeof...(Ts) > 0)
async_generator<std::tuple<Ts...>> zip_equal(async_generator<Ts>... sources) {
  return detail::make_zip<Ts...>("zip_equal", true, std::move(sources)...);
}

}  // namespace millrace
