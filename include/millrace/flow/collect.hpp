// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <millrace/coro/task.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace {

/// Everything that is left of a stream, in memory: `std::vector<T> all = co_await collect(std::move(source));`. An
/// error of the stream is thrown and what came before it is dropped.
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
