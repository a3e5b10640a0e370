// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/task.hpp>

namespace millrace {

/// Everything that is left of a stream, in memory: `std::vector<T> all = co_await collect(std::move(source));`. An
/// error of the stream is thrown and what came before it is dropped.
template <class T>
task<std::vector<T>> collect(async_generator<T> source) {
  std::vector<T> all;
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) break;
    all.push_back(std::move(*item));
  }
  co_return all;
}

}  // namespace millrace
