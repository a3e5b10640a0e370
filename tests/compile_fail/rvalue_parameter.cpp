// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: a coroutine must not take a parameter by rvalue reference.* Take it by value
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>

#ifdef MILLRACE_MUST_FAIL
#define PARAMETER millrace::async_generator<int>&&
#else
#define PARAMETER millrace::async_generator<int>
#endif

millrace::async_generator<int> relay(PARAMETER source) {
  while (auto x = co_await source.next()) co_yield millrace::give(*x);
}

// A stage that is called once, as pipes call it, may say so: the pipe keeps it.
struct once {
  millrace::async_generator<int> operator()(millrace::async_generator<int> source) && {
    while (auto x = co_await source.next()) co_yield *x + first;
  }
  int first = 1;
};

int main() {
  auto items = relay(millrace::iota(3).generator()) | once();
}
