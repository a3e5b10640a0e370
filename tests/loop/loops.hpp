// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <millrace/coro/spawned.hpp>
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/loop/ring_loop.hpp>
#include "tests/support/catch.hpp"

namespace millrace::test {

/// Every way in which a loop can be set up. `tiny` is a ring that holds next to nothing.
enum class loop_kind { deferred, cooperative, plain, tiny, epoll };

inline const char* name(loop_kind k) {
  static const char* const names[] = {"deferred ring", "cooperative ring", "plain ring", "tiny ring", "epoll"};
  return names[static_cast<int>(k)];
}

/// Null where the kernel refuses io_uring altogether.
inline std::unique_ptr<event_loop> make_loop(loop_kind k) {
  if (k == loop_kind::epoll) return make_event_loop({.force_epoll = true});
  auto flavour = ring_loop::flavour::deferred;
  if (k == loop_kind::cooperative) flavour = ring_loop::flavour::cooperative;
  if (k == loop_kind::plain) flavour = ring_loop::flavour::plain;
  const auto size = k == loop_kind::tiny ? ring_loop::entries{2, 16} : ring_loop::entries();
  int refused = 0;
  return ring_loop::try_make(refused, flavour, size);
}

/// A few turns that do not wait for the kernel.
inline task<void> yield_times(int n) {
  for (int i = 0; i < n; ++i) co_await yield_now();
}
inline void turns(executor& ex, int n) {
  spawned<void> running(ex, yield_times(n));
  ex.run_until([&] { return running.done(); });
}

/// A pipe, or something else with two ends.
struct two_ends {
  two_ends() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("no pipe");
    in = detail::owned_fd(ends[0]);
    out = detail::owned_fd(ends[1]);
  }
  void write(const std::string& text = "x") const {
    if (::write(out.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("the pipe is full");
    }
  }
  detail::owned_fd in;
  detail::owned_fd out;
};

}  // namespace millrace::test

/// Runs the rest of the test case on every kind of loop; `loop` is a reference to it.
#define MILLRACE_EACH_LOOP(loop)                                                                                  \
  using millrace::test::loop_kind;                                                                                \
  const auto kind_of_loop =                                                                                       \
      GENERATE(loop_kind::deferred, loop_kind::cooperative, loop_kind::plain, loop_kind::tiny, loop_kind::epoll); \
  INFO(millrace::test::name(kind_of_loop));                                                                       \
  const auto loop##_owner = millrace::test::make_loop(kind_of_loop);                                              \
  if (loop##_owner == nullptr) MILLRACE_SKIP(std::string("no ") + millrace::test::name(kind_of_loop) + " here");  \
  millrace::event_loop& loop = *loop##_owner
