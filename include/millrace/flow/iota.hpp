// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/detail/shortcut.hpp>

namespace millrace {

namespace detail {

template <class Integer>
class count_shortcut : public shortcut<Integer, count_shortcut<Integer>> {
 public:
  count_shortcut(Integer first, Integer last) : next_(first), last_(last), item_(first) {}
  Integer* make() {
    if (!(next_ != last_)) return nullptr;  // all that is asked of an Integer beside < and ++
    item_ = next_;
    ++next_;
    return __builtin_addressof(item_);
  }

 private:
  Integer next_;
  Integer last_;
  Integer item_;  // the consumer's until it asks again: it may write to it
};

template <class Integer>
async_generator<Integer> count_up(Integer first, Integer last) {
  count_shortcut<Integer> way(first, last);
  co_await way.opened();
  while (Integer* item = way.make()) {
    co_yield give(*item);
    way.come_back();
  }
}

}  // namespace detail

/// A generator of first, first + 1, ... up to but not including `last`. Nothing when last <= first.
template <class Integer>
async_generator<Integer> iota(Integer first, Integer last) {
  return detail::count_up<Integer>(first, last < first ? first : last).named("iota");
}

/// 0, 1, ... count - 1.
template <class Integer>
async_generator<Integer> iota(Integer count) {
  return iota<Integer>(Integer(0), count);
}

}  // namespace millrace
