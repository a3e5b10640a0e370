// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include <millrace/data/item.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// True if item_bytes() can measure items of type T.
template <class T>
inline constexpr bool counts_bytes_v = has_byte_size<T>;
template <>
inline constexpr bool counts_bytes_v<std::string> = true;
template <class T, class A>
inline constexpr bool counts_bytes_v<std::vector<T, A>> = counts_bytes_v<T> || std::is_trivially_copyable_v<T>;

/// Items whose memory another stage has declared: device_batch.
template <class T>
inline constexpr bool declared_before_v = false;

/// Bytes that an item holds, for bounds and for the stage table: `byte_size(item)` (see data/item.hpp);
/// built in for strings and vectors; 0 for other types.
template <class T>
std::size_t item_bytes(const T& item) {
  if constexpr (has_byte_size<T>) {
    return static_cast<std::size_t>(byte_size(item));
  } else {
    return 0;
  }
}
inline std::size_t item_bytes(const std::string& item) { return item.size(); }
template <class T, class A>
std::size_t item_bytes(const std::vector<T, A>& items) {
  if constexpr (!counts_bytes_v<T> && std::is_trivially_copyable_v<T>) {
    return items.size() * sizeof(T);
  } else {
    std::size_t sum = 0;
    if constexpr (counts_bytes_v<T>) {
      for (const T& item : items) sum += item_bytes(item);
    }
    return sum;
  }
}

}  // namespace millrace::detail
