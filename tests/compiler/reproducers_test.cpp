// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/compiler/bare_task.hpp"

#include "tests/support/catch.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <millrace/base/compiler.hpp>

// Legal programs that some compiler is known to break. They report; they do not fail: which ones the compiler at hand
// breaks is printed, and the library's rules (docs on compilers) keep its users from writing them. Only where the
// library relies on the compiler being right, because its workaround is switched off, is a broken one an error.

using namespace millrace::test;
using bare::generator;
using bare::run;
using bare::task;

namespace {

struct pair_of {  // an aggregate with a destructor that does something
  tracked first;
  tracked second;
};
int sum(const pair_of& p) { return p.first.value + p.second.value; }

task<int> take(pair_of p) { co_return sum(p); }
task<int> look(const pair_of& p) { co_return sum(p); }
task<int> take_or_default(pair_of p = {}) { co_return sum(p) + 3; }
task<int> take_array(std::array<tracked, 2> a) { co_return a[0].value + a[1].value; }
template <class F>
task<int> call(F f) {
  co_return f();
}
task<tracked> make(int v) { co_return tracked(v); }
task<bool> yes() { co_return true; }

struct client {  // an aggregate whose member function is a coroutine
  tracked connection;
  task<int> get(int k) { co_return connection.value + k; }
};
struct aggregate_awaiter {
  tracked state;
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  int await_resume() const noexcept { return state.value; }
};

bool yielded_aggregate() {
  struct local {
    static generator<pair_of> numbers() {
      co_yield pair_of{tracked(1), tracked(2)};
      co_yield {tracked(3), tracked(4)};
    }
  };
  auto g = local::numbers();
  int total = 0;
  while (pair_of* p = g.next()) total += sum(*p);
  return total == 10;
}
bool aggregate_argument() {
  struct local {
    static task<int> body() { co_return co_await take(pair_of{tracked(1), tracked(2)}); }
  };
  return run(local::body()) == 3;
}
bool designated_argument() {
  struct local {
    static task<int> body() { co_return co_await take({.first = tracked(1), .second = tracked(2)}); }
  };
  return run(local::body()) == 3;
}
bool aggregate_reference() {
  struct local {
    static task<int> body() { co_return co_await look(pair_of{tracked(1), tracked(2)}); }
  };
  return run(local::body()) == 3;
}
bool default_argument() {
  struct local {
    static task<int> body() { co_return co_await take_or_default(); }
  };
  return run(local::body()) == 3;
}
bool array_argument() {
  struct local {
    static task<int> body() { co_return co_await take_array(std::array<tracked, 2>{tracked(1), tracked(2)}); }
  };
  return run(local::body()) == 3;
}
bool capturing_lambda() {
  struct local {
    static task<int> body() {
      tracked t(3);
      co_return co_await call([t] { return t.value; });
    }
  };
  return run(local::body()) == 3;
}
bool lambda_called_in_place() {
  struct local {
    static task<int> body() {
      tracked t(3);
      co_return co_await [t]() -> task<int> { co_return t.value; }();
    }
  };
  return run(local::body()) == 3;
}
bool conditional_of_class_type() {
  struct local {
    static task<int> body(bool b) {
      tracked t = b ? co_await make(3) : tracked(4);
      co_return t.value;
    }
  };
  return run(local::body(true)) == 3 && run(local::body(false)) == 4;
}
bool await_inside_braces() {
  struct local {
    static task<int> body() {
      pair_of p{tracked(1), co_await make(2)};
      co_return sum(p);
    }
  };
  return run(local::body()) == 3;
}
bool method_of_temporary() {
  struct local {
    static task<int> body() { co_return co_await client{tracked(1)}.get(2); }
  };
  return run(local::body()) == 3;
}
bool awaited_aggregate() {
  struct local {
    static task<int> body() { co_return co_await aggregate_awaiter{tracked(3)}; }
  };
  return run(local::body()) == 3;
}
bool await_in_condition() {
  struct local {
    static task<int> body() {
      if (co_await yes()) co_return 3;
      co_return 4;
    }
  };
  auto t = local::body();  // a misplaced frame is left alone: it can be neither resumed nor destroyed
  const auto handle = std::exchange(t.handle, nullptr);
  if (reinterpret_cast<std::uintptr_t>(handle.address()) % __STDCPP_DEFAULT_NEW_ALIGNMENT__ != 0) return false;
  return run(task<int>(handle)) == 3;
}

struct program {
  const char* code;
  bool (*check)();
  bool relied_on;  // the library has switched its workaround off
};
const program programs[] = {
    {"co_yield aggregate{...}", yielded_aggregate, !MILLRACE_AGGREGATE_TEMPORARIES_UNSAFE},
    {"co_await f(aggregate{...})", aggregate_argument, false},
    {"co_await f({.member = ...})", designated_argument, false},
    {"co_await f(aggregate{...}) by reference", aggregate_reference, false},
    {"co_await f() with a default argument {}", default_argument, false},
    {"co_await f(std::array{...})", array_argument, false},
    {"co_await f([x] { ... })", capturing_lambda, false},
    {"co_await [x]() -> task { ... }()", lambda_called_in_place, false},
    {"b ? co_await f() : object", conditional_of_class_type, false},
    {"aggregate x{object, co_await f()}", await_inside_braces, false},
    {"co_await aggregate{...}.f()", method_of_temporary, false},
    {"co_await aggregate_awaiter{...}", awaited_aggregate, false},
    {"if (co_await f()) in a body without variables", await_in_condition, !MILLRACE_AWAIT_IN_CONDITION_UNSAFE},
};

}  // namespace

TEST_CASE("what the compiler at hand breaks") {
  int broken = 0;
  for (const program& p : programs) {
    const bool right = bare::compiled_correctly(p.check);
    if (!right) {
      ++broken;
      std::printf("broken by " __VERSION__ ": %s\n", p.code);
    }
    INFO(p.code);
    CHECK((right || !p.relied_on));
  }
  std::printf("%d of %zu programs are broken by " __VERSION__ "\n", broken, std::size(programs));
  std::fflush(stdout);
}

TEST_CASE("the trial notices what it looks for") {
  CHECK(bare::compiled_correctly([] { return true; }));
  CHECK_FALSE(bare::compiled_correctly([] { return false; }));
  CHECK_FALSE(bare::compiled_correctly([]() -> bool { std::abort(); }));
  CHECK_FALSE(bare::compiled_correctly([] {
    tracked::wrong = 1;  // as after a second destruction
    return true;
  }));
  CHECK_FALSE(bare::compiled_correctly([] {
    new tracked(1);
    return true;
  }));
}
