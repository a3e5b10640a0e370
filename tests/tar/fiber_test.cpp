// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/tar/detail/fiber.hpp>

#include <stdexcept>
#include <string>

#include "tests/support/catch.hpp"

namespace {

using millrace::tar::detail::fiber;

struct counter {
  fiber* self = nullptr;
  int steps = 0;
  int caught = 0;
  std::string text;
};

void count(void* argument) {
  auto& c = *static_cast<counter*>(argument);
  std::string on_the_stack;
  for (int i = 0; i < 3; ++i) {
    try {
      if (i == 1) throw std::runtime_error("inside");
    } catch (const std::runtime_error&) {
      ++c.caught;
    }
    on_the_stack += std::to_string(i);
    c.text = on_the_stack;
    ++c.steps;
    c.self->suspend();
  }
}

int deep(int n) {
  volatile char frame[512] = {};
  frame[n % 512] = static_cast<char>(n);
  return n == 0 ? 0 : deep(n - 1) + frame[n % 512] - frame[n % 512] + 1;
}

}  // namespace

TEST_CASE("tar fiber goes back and forth") {
  counter c;
  fiber f(std::size_t(256) << 10, count, &c);
  c.self = &f;
  CHECK(!f.started());
  for (int i = 1; i <= 3; ++i) {
    f.resume();
    CHECK(c.steps == i);
    CHECK(!f.done());
  }
  CHECK(c.text == "012");
  CHECK(c.caught == 1);
  f.resume();
  CHECK(f.done());
}

TEST_CASE("tar fiber that was never resumed is simply freed") {
  counter c;
  fiber f(std::size_t(64) << 10, count, &c);
  CHECK(!f.done());
  CHECK(c.steps == 0);
}

TEST_CASE("tar fibers run inside each other and while an exception is on its way") {
  struct nest {
    counter inner;
    fiber* self = nullptr;
    int depth = 0;
  } n;
  const auto body = [](void* argument) {
    auto& outer = *static_cast<nest*>(argument);
    fiber f(std::size_t(256) << 10, count, &outer.inner);
    outer.inner.self = &f;
    f.resume();
    outer.self->suspend();
    outer.depth = deep(100);
    while (!f.done()) f.resume();
  };
  fiber f(std::size_t(512) << 10, body, &n);
  n.self = &f;
  struct at_exit {
    fiber& f;
    ~at_exit() {
      while (!f.done()) f.resume();
    }
  };
  try {
    f.resume();
    const at_exit finish{f};
    throw std::runtime_error("unwinding");
  } catch (const std::runtime_error& e) {
    CHECK(std::string(e.what()) == "unwinding");
  }
  CHECK(n.depth == 100);
  CHECK(n.inner.steps == 3);
}
