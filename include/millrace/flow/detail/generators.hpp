// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>

namespace millrace::detail {

/// Everything that the sources have declared.
template <class T>
std::vector<stage_bounds> take_all_bounds(std::vector<async_generator<T>>& sources) {
  std::vector<stage_bounds> all;
  for (async_generator<T>& source : sources) {
    const std::vector<stage_bounds> bounds = source.take_bounds();
    all.insert(all.end(), bounds.begin(), bounds.end());
  }
  return all;
}

template <class T, class... More>
std::vector<async_generator<T>> generators(async_generator<T> first, More... more) {
  std::vector<async_generator<T>> all;
  all.reserve(1 + sizeof...(more));
  all.push_back(std::move(first));
  (all.push_back(std::move(more)), ...);
  return all;
}

}  // namespace millrace::detail
