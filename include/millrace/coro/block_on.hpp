// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/coro/started.hpp>

namespace millrace {

/// Runs `t` to its end on `ex`, on the calling thread, and returns its result or throws its exception: the way from
/// ordinary code into coroutines. What the task left behind (orphaned operations) is drained before it returns.
template <class T>
T block_on(executor& ex, task<T> t, stage_record* stage = nullptr) {
  struct drain_at_end {
    executor& ex;
    ~drain_at_end() { ex.drain(); }
  } guard{ex};
  started<T> running(ex, std::move(t), stage);
  ex.run_until([&] { return running.done(); });
  return running.take();
}

}  // namespace millrace
