// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A stage of your own: any callable from async_generator<T> to async_generator<U>. This one is a coroutine that turns
// temperatures into warnings, and it waits (for a timer here, for anything in practice) without blocking a thread.

#include <cstdio>
#include <string>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>

namespace mill = millrace;

mill::async_generator<std::string> warn(mill::async_generator<double> temperatures) {
  while (std::optional<double> t = co_await temperatures.next()) {
    if (*t < 80) continue;
    co_await mill::sleep_for(std::chrono::milliseconds(1));
    std::string line = "too hot: " + std::to_string(static_cast<int>(*t));
    co_yield mill::give(line);
  }
}

mill::task<int> print(mill::stream<std::string> lines) {
  int count = 0;
  while (std::optional<std::string> line = co_await lines.next()) {
    std::puts(line->c_str());
    ++count;
  }
  co_return count;
}

int main() {
  const auto loop = mill::make_event_loop();
  auto warnings = mill::from_range(std::vector<double>{21, 85, 40, 99.5})  //
                  | mill::filter([](double t) { return t > 30; })          //
                  | mill::named("warn", warn);
  return mill::block_on(*loop, print(std::move(warnings))) == 2 ? 0 : 1;
}
