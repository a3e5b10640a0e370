// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/flow/stream.hpp>

namespace millrace {

namespace detail {

template <class Integer>
async_generator<Integer> count_up(Integer first, Integer last) {
  for (; first != last; ++first) {  // all that is asked of an Integer beside <
    Integer item = first;
    co_yield give(item);
  }
}

}  // namespace detail

/// A stream of first, first + 1, ... up to but not including `last`. Nothing when last <= first.
template <class Integer>
stream<Integer> iota(Integer first, Integer last) {
  return stream<Integer>(detail::count_up<Integer>(first, last < first ? first : last)).named("iota");
}

/// 0, 1, ... count - 1.
template <class Integer>
stream<Integer> iota(Integer count) {
  return iota<Integer>(Integer(0), count);
}

}  // namespace millrace
