// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

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
concept member_callable_with = requires(F&& f, Arg&& arg) { (static_cast<Arg&&>(arg).*f)(); } ||
                               requires(F&& f, Arg&& arg) { static_cast<Arg&&>(arg).*f; };
/// Asked without a look at call(), whose result is deduced: an error in there would be no answer.
template <class F, class Arg>
concept callable_with =
    std::is_invocable_v<F, Arg> && (!std::is_member_pointer_v<std::remove_cvref_t<F>> || member_callable_with<F, Arg>);
template <class F, class Arg>
using call_result_t = std::remove_cvref_t<std::invoke_result_t<F, Arg>>;

template <class T>
inline constexpr bool is_task_v = false;
template <class T>
inline constexpr bool is_task_v<task<T>> = true;

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

/// For the explain() of stages with a function of the user: why it is no stage for items of type T.
template <class F, class Arg>
constexpr void explain_call() {
  static_assert(
      callable_with<F, Arg>,
      "the function given to this stage cannot be called with the items that come from the left side of | (it takes an "
      "item by value, by const& or by &&)");
}

}  // namespace millrace::detail
