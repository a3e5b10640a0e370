// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/flow/detail/call.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace {

namespace detail {

template <class T, class F>
async_generator<T> generated_items(F f) {
  for (;;) {
    if constexpr (is_task_v<std::remove_cvref_t<std::invoke_result_t<F&>>>) {
      task<std::optional<T>> work = f();
      std::optional<T> item = co_await std::move(work);
      work = task<std::optional<T>>();
      if (!item) co_return;
      co_yield give(*item);
    } else {
      std::optional<T> item = f();
      if (!item) co_return;
      co_yield give(*item);
    }
  }
}

}  // namespace detail

/// A stream of what `f()` returns, a std::optional<T> or a task of one, called for each item when it is asked for;
/// nullopt ends the stream, which owns `f`.
template <class F>
auto generate(F f) {
  using element = typename detail::awaited<std::remove_cvref_t<std::invoke_result_t<F&>>>::type::value_type;
  return stream<element>(detail::generated_items<element, F>(std::move(f))).named("generate");
}

}  // namespace millrace
