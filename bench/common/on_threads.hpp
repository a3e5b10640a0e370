// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include <millrace/coro/task.hpp>
#include <millrace/flow/stream.hpp>

namespace bench {

/// `work(i)` for each number below `count`, on threads of which each takes the next one: what a stage on a pool is
/// compared with. `make_work()` makes one for each thread.
template <class MakeWork>
void on_threads(unsigned threads, int count, MakeWork make_work) {
  std::atomic<int> next{0};
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      auto work = make_work();
      for (int i; (i = next.fetch_add(1)) < count;) work(i);
    });
  }
  for (std::thread& t : pool) t.join();
}

/// Takes them all.
template <class T>
millrace::task<int> count_all(millrace::stream<T> items) {
  int n = 0;
  while (std::optional<T> item = co_await items.next()) ++n;
  co_return n;
}

}  // namespace bench
