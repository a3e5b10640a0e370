// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace millrace::detail {

/// How many samples an item of the training thread holds: `sample_count(item)`, found by argument-dependent lookup;
/// built in for vectors, which batch() makes (one of numbers is a sample itself). 0: not known.
template <class T>
std::int64_t item_samples(const T& item) {
  if constexpr (requires { static_cast<std::size_t>(sample_count(item)); }) {
    return static_cast<std::int64_t>(sample_count(item));
  } else {
    return 0;
  }
}
template <class T, class A>
std::int64_t item_samples(const std::vector<T, A>& items) {
  return std::is_arithmetic_v<T> ? 0 : static_cast<std::int64_t>(items.size());
}

}  // namespace millrace::detail
