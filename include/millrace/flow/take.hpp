// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <millrace/flow/pipe.hpp>

namespace millrace {

namespace detail {

template <class T>
async_generator<T> take_items(async_generator<T> source, std::uint64_t count) {
  while (count > 0) {
    std::optional<T> item = co_await source.next();
    if (!item) co_return;
    if (--count == 0) source = async_generator<T>();
    co_yield give(*item);
  }
}

}  // namespace detail

/// What take() returns.
class take_stage : public detail::library_stage {
 public:
  explicit take_stage(std::uint64_t count) noexcept : count_(count) {}

  template <class T>
  stream<T> operator()(async_generator<T> source) && {
    return stream<T>(detail::take_items<T>(std::move(source), count_)).named("take");
  }

 private:
  std::uint64_t count_;
};

/// A stage that hands on the first `count` items. With the last one it drops everything upstream, whatever is in flight
/// there; it never asks for an item that it would not hand on.
inline take_stage take(std::uint64_t count) noexcept { return take_stage(count); }

}  // namespace millrace
