// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/detail/refused.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/flow/detail/call.hpp>

namespace millrace::detail {

/// Everything that the sources have declared.
/// What pipes do with a source, for several: each gets a line in the stage table.
template <class T>
std::vector<stage_bounds> take_all_bounds(std::vector<async_generator<T>>& sources) {
  std::vector<stage_bounds> all;
  for (async_generator<T>& source : sources) {
    source.numbered();
    const std::vector<stage_bounds> bounds = source.take_bounds();
    all.insert(all.end(), bounds.begin(), bounds.end());
  }
  return all;
}

template <class T, class... More>
std::vector<async_generator<T>> generators(async_generator<T>&& first, More&&... more) {
  std::vector<async_generator<T>> all;
  all.reserve(1 + sizeof...(more));
  all.push_back(std::move(first));
  (all.push_back(std::move(more)), ...);
  return all;
}

/// Why merge() and concat() do not take these arguments.
template <class First, class... More>
constexpr void explain_sources() {
  constexpr bool alike = (std::is_same_v<std::remove_cvref_t<First>, std::remove_cvref_t<More>> && ...);
  static_assert(alike,
                "the sources of merge and concat must be generators of one item type: change the others first, as in "
                "std::move(source) | map(f)");
  static_assert(!alike, "merge and concat consume their sources: write merge(std::move(a), std::move(b))");
}

}  // namespace millrace::detail
