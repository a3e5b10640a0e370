// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: a coroutine must not take a parameter by rvalue reference.* Take it by value
#include <string>

#include <millrace/coro/task.hpp>

#ifdef MILLRACE_MUST_FAIL
#define PARAMETER std::string&&
#else
#define PARAMETER std::string
#endif

class client {
 public:
  millrace::task<std::size_t> length(const std::string& prefix, PARAMETER text) {
    co_return prefix.size() + text.size();
  }
};

int main() {
  client c;
  const auto size = [&c](int, std::string text) mutable -> millrace::task<std::size_t> {
    co_return co_await c.length("a", std::move(text));
  };
  millrace::task<std::size_t> t = c.length("a", "b");
  (void)size;
}
