// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/task.hpp>

namespace millrace::detail {

template <class... Ts>
using zip_row = std::tuple<std::optional<Ts>...>;

/// Asks the sources one after the other, from the I-th on, so that every run makes its requests in the same order.
/// Returns how many have ended; stops at the first one unless `all`.
template <std::size_t I, class... Ts>
task<std::size_t> pull_row(std::tuple<async_generator<Ts>...>& sources, zip_row<Ts...>& row, bool all) {
  using item_type = std::tuple_element_t<I, std::tuple<Ts...>>;
  std::size_t ended = 0;
  std::optional<item_type> item = co_await std::get<I>(sources).next();
  if (item) {
    std::get<I>(row).emplace(std::move(*item));
  } else {
    ended = 1;
    if (!all) co_return ended;
  }
  if constexpr (I + 1 < sizeof...(Ts)) {
    task<std::size_t> others = pull_row<I + 1, Ts...>(sources, row, all);
    ended += co_await std::move(others);
  }
  co_return ended;
}

template <class... Ts, std::size_t... I>
std::tuple<Ts...> unwrap_row(zip_row<Ts...>& row, std::index_sequence<I...>) {
  return std::tuple<Ts...>(std::move(*std::get<I>(row))...);
}

template <class... Ts>
async_generator<std::tuple<Ts...>> zipped(std::tuple<async_generator<Ts>...> sources, bool equal) {
  for (;;) {
    std::optional<zip_row<Ts...>> row;
    row.emplace();
    task<std::size_t> pulled = pull_row<0, Ts...>(sources, *row, equal);
    const std::size_t ended = co_await std::move(pulled);
    pulled = task<std::size_t>();
    if (ended > 0) {
      if (equal && ended < sizeof...(Ts)) {
        throw error("zip_equal: " + std::to_string(ended) + " of " + std::to_string(sizeof...(Ts)) +
                    " sources ended before the others");
      }
      co_return;
    }
    std::tuple<Ts...> item = unwrap_row<Ts...>(*row, std::index_sequence_for<Ts...>());
    row.reset();
    co_yield give(item);
  }
}

}  // namespace millrace::detail
