// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/testing/virtual_loop.hpp>

namespace flow_tests {

using ints = std::vector<int>;

/// Everything that `source` gives, on a loop of its own.
template <class Source>
std::vector<typename Source::value_type> run(Source source) {
  millrace::testing::virtual_loop loop;
  return millrace::block_on(loop, millrace::collect(std::move(source)));
}

/// The items up to the end or to a std::runtime_error, and its message.
template <class T>
struct outcome {
  std::vector<T> items;
  std::string error;
};
template <class Source, class T = typename Source::value_type>
millrace::task<void> consume(Source source, outcome<T>& seen) {
  try {
    while (std::optional<T> item = co_await source.next()) seen.items.push_back(std::move(*item));
  } catch (const std::runtime_error& e) {
    seen.error = e.what();
  }
  const std::optional<T> more = co_await source.next();
  if (more) seen.error += " and then more items";
}
template <class Source, class T = typename Source::value_type>
outcome<T> run_to_error(millrace::executor& loop, Source source) {
  outcome<T> seen;
  millrace::block_on(loop, consume(std::move(source), seen));
  return seen;
}

/// Takes `count` items and lets go of the generator only afterwards.
template <class Source, class T = typename Source::value_type>
std::vector<T> run_some(millrace::executor& loop, Source& source, std::size_t count) {
  std::vector<T> all;
  auto body = [&]() -> millrace::task<void> {
    for (std::size_t i = 0; i < count; ++i) {
      std::optional<T> item = co_await source.next();
      if (!item) co_return;
      all.push_back(std::move(*item));
    }
  };
  millrace::block_on(loop, body());
  return all;
}

}  // namespace flow_tests
