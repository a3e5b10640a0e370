// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace millrace {

namespace detail {
/// The address of an object that is handed over: a number with a type of its own. A class that holds a pointer would be
/// a temporary that every co_yield writes into the generator's frame.
template <class T>
struct given_object {
  enum class address : std::uintptr_t {};
  static T& at(address a) noexcept { return *reinterpret_cast<T*>(static_cast<std::uintptr_t>(a)); }
};
}  // namespace detail

/// What give() returns, for co_yield alone.
template <class T>
using given = typename detail::given_object<T>::address;

/// `co_yield give(x);` hands a named object over by move. Works for every type under every supported compiler; in a
/// template that nvcc compiles, x must be of a type that depends on a parameter (`class Item = sample` does).
template <class T>
given<T> give(T& object) noexcept {
  return static_cast<given<T>>(reinterpret_cast<std::uintptr_t>(__builtin_addressof(object)));
}

}  // namespace millrace
