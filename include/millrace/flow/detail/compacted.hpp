// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

namespace millrace::detail {

/// The item as it should be kept for long: what `compact(item)`, found by argument-dependent lookup, returns; the item
/// changed in place where it returns nothing; the item itself where there is none.
template <class T>
T compacted(T&& item) {
  static_assert(!std::is_reference_v<T>);
  if constexpr (requires { compact(item); }) {
    if constexpr (std::is_void_v<decltype(compact(item))>) {
      compact(item);
      return std::move(item);
    } else {
      return T(compact(item));
    }
  } else {
    return std::move(item);
  }
}

}  // namespace millrace::detail
