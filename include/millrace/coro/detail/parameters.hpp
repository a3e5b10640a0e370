// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

namespace millrace::detail {

template <class T>
inline constexpr bool by_rvalue_reference = false;
template <class T>
inline constexpr bool by_rvalue_reference<T&&> = true;
template <class T>
inline constexpr bool by_rvalue_reference<T&> = false;

/// What a member function is called on comes first among the parameters, too. A function object whose operator() is for
/// rvalues is a stage, which the pipe keeps.
template <class Result, class First, class... Rest>
constexpr bool refers_to_temporaries() {
  if constexpr ((by_rvalue_reference<Rest> || ...)) return true;
  if constexpr (by_rvalue_reference<First>) return !std::is_invocable_r_v<Result, First, Rest...>;
  return false;
}
template <class Result>
constexpr bool refers_to_temporaries() {
  return false;
}

/// Base of our std::coroutine_traits, which see a coroutine's parameters as they are declared: refuses rvalue
/// references. Such a parameter binds to temporaries, and these are gone when the coroutine, which has not even begun
/// when its call returns, comes to use it.
template <class Result, class... Parameters>
struct coroutine_traits {
  static_assert(!refers_to_temporaries<Result, Parameters...>(),
                "a coroutine must not take a parameter by rvalue reference: what it refers to may be gone when the "
                "coroutine runs. Take it by value");
  using promise_type = typename Result::promise_type;
};

}  // namespace millrace::detail
