// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loop/detail/thread.hpp>

#include <cerrno>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "tests/coro/support.hpp"
#include "tests/loop/refuse_call.hpp"
#include "tests/support/catch.hpp"

namespace {

struct seen {
  std::string name;
  int policy = -1;
  sigset_t blocked{};
};

/// What a thread of ours is like once it has been made.
seen look_at_thread() {
  seen result;
  std::promise<void> started;
  millrace::detail::thread thread("millrace-test", [&result, gate = started.get_future()]() mutable {
    gate.wait();
    char name[16] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    result.name = name;
    sched_param parameters{};
    ::pthread_getschedparam(::pthread_self(), &result.policy, &parameters);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &result.blocked);
  });
  started.set_value();
  thread.join();
  return result;
}

}  // namespace

TEST_CASE("thread: a thread of the library has a name, the signals it raises itself, and lets who wakes it run") {
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  const seen s = look_at_thread();
  CHECK(s.name == "millrace-test");
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  const std::set<int> own_fault = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  sigset_t blockable;  // all but those that the C library keeps for itself
  ::sigfillset(&blockable);
  for (int number = 1; number <= SIGRTMAX; ++number) {
    INFO("signal " << number);
    CHECK(::sigismember(&after, number) == ::sigismember(&before, number));
    if (number == SIGKILL || number == SIGSTOP || ::sigismember(&blockable, number) != 1) continue;
    CHECK(::sigismember(&s.blocked, number) == (own_fault.count(number) == 0 ? 1 : 0));
  }
  int own = -1;
  sched_param parameters{};
  REQUIRE(::pthread_getschedparam(::pthread_self(), &own, &parameters) == 0);
  if (own != SCHED_OTHER) MILLRACE_SKIP("the tests run under a scheduling policy of their own");
  CHECK(s.policy == SCHED_BATCH);
}

TEST_CASE("thread: a policy that the program has chosen is inherited") {
  int chosen = -1;
  int inherited = -1;
  std::thread program([&] {
    const sched_param parameters{};
    chosen = ::pthread_setschedparam(::pthread_self(), SCHED_IDLE, &parameters);
    inherited = look_at_thread().policy;
  });
  program.join();
  REQUIRE(chosen == 0);
  CHECK(inherited == SCHED_IDLE);
}

TEST_CASE("thread: the body is destroyed on the thread, and what it did is seen after join()") {
  struct body {
    explicit body(std::thread::id& where) : ended_on(&where) {}
    body(body&& other) noexcept : ended_on(std::exchange(other.ended_on, nullptr)) {}
    ~body() {
      if (ended_on != nullptr) *ended_on = std::this_thread::get_id();
    }
    void operator()() noexcept { *ended_on = std::thread::id(); }
    std::thread::id* ended_on;
  };
  std::thread::id ended_on;
  millrace::detail::thread first("millrace-test", body(ended_on));
  CHECK(first.joinable());
  millrace::detail::thread second(std::move(first));
  CHECK_FALSE(first.joinable());  // NOLINT: promised
  second.join();
  CHECK_FALSE(second.joinable());
  CHECK(ended_on != std::thread::id());
  CHECK(ended_on != std::this_thread::get_id());
  second = millrace::detail::thread();
}

TEST_CASE("thread: one that waits for its own end says so and aborts") {
  const std::string message = millrace::test::death_message([] {
    std::promise<millrace::detail::thread*> made;
    std::promise<void> joined;
    millrace::detail::thread thread("millrace-test", [&, itself = made.get_future()]() mutable {
      itself.get()->join();
      joined.set_value();
    });
    made.set_value(&thread);
    joined.get_future().wait();  // never: the process ends
  });
  CHECK_THAT(message, Catch::Matchers::Contains("a thread would wait for its own end"));
}

TEST_CASE("thread: one that cannot be started is an error of the library, with the system's words") {
  std::string said;
  int code = 0;
  const bool filtered = millrace::test::where_refused({SYS_clone3, EAGAIN}, [&] {
    if (!millrace::test::refuse({SYS_clone, EAGAIN})) return;
    try {
      millrace::detail::thread thread("millrace-test", [] {});
      thread.join();
    } catch (const millrace::io_error& e) {
      said = e.what();
      code = e.code().value();
    }
  });
  if (!filtered) MILLRACE_SKIP("no seccomp here");
  CHECK(said == "no thread could be started: Resource temporarily unavailable");
  CHECK(code == EAGAIN);
}
