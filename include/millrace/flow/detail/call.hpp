// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/task.hpp>

namespace millrace::detail {

/// What user functions may be: anything std::invoke takes with one argument (<functional> is too heavy for this).
template <class F, class Arg>
constexpr decltype(auto) call(F&& f, Arg&& arg) {
  if constexpr (std::is_member_object_pointer_v<std::remove_cvref_t<F>>) {
    return (static_cast<Arg&&>(arg).*f);
  } else if constexpr (std::is_member_function_pointer_v<std::remove_cvref_t<F>>) {
    return (static_cast<Arg&&>(arg).*f)();
  } else {
    return static_cast<F&&>(f)(static_cast<Arg&&>(arg));
  }
}
template <class F, class Arg>
concept callable_with = requires(F&& f, Arg&& arg) { detail::call(static_cast<F&&>(f), static_cast<Arg&&>(arg)); } &&
                        std::is_invocable_v<F, Arg>;
template <class F, class Arg>
using call_result_t = std::remove_cvref_t<std::invoke_result_t<F, Arg>>;

template <class T>
inline constexpr bool is_task_v = false;
template <class T>
inline constexpr bool is_task_v<task<T>> = true;

template <class T>
inline constexpr bool is_generator_v = false;
template <class T>
inline constexpr bool is_generator_v<async_generator<T>> = true;

template <class T>
struct awaited {
  using type = T;
};
template <class T>
struct awaited<task<T>> {
  using type = T;
};
/// The result of a function that may return a task: what the task returns.
template <class F, class Arg>
using mapped_t = typename awaited<call_result_t<F, Arg>>::type;

template <class F, class Arg>
concept maps = callable_with<F, Arg> && !std::is_void_v<mapped_t<F, Arg>>;
template <class F, class Arg>
concept tests = callable_with<F, Arg> && std::is_constructible_v<bool, mapped_t<F, Arg>>;

}  // namespace millrace::detail
