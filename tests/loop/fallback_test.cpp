// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/loop/ring_loop.hpp>

#include <cerrno>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/loop/loops.hpp"
#include "tests/loop/refuse_call.hpp"
#include "tests/support/forget_lines.hpp"

namespace millrace::test {
namespace {

struct lines {
  static void add(void* context, const char* line) { static_cast<lines*>(context)->all.emplace_back(line); }
  std::vector<std::string> all;
};

TEST_CASE("a refused ring means epoll, told once", "[loop]") {
  lines log;
  const auto loop = make_event_loop({.log = lines::add, .log_context = &log, .pretend_ring_error = EPERM});
  CHECK(std::string(loop->backend()) == "epoll");
  turns(*loop, 2);
  REQUIRE(log.all.size() == 1);
  CHECK_THAT(log.all[0], Catch::Matchers::Contains("io_uring is not available (Operation not permitted)"));
  CHECK(log.all[0].find('\n') == std::string::npos);
}

TEST_CASE("epoll by choice says nothing", "[loop]") {
  lines log;
  const auto loop = make_event_loop({.force_epoll = true, .log = lines::add, .log_context = &log});
  CHECK(std::string(loop->backend()) == "epoll");
  CHECK(log.all.empty());
}

TEST_CASE("a ring, where there is one, says nothing", "[loop]") {
  lines log;
  const auto loop = make_event_loop({.log = lines::add, .log_context = &log});
  if (std::string(loop->backend()) != "io_uring") MILLRACE_SKIP("io_uring is refused here");
  CHECK(log.all.empty());
  CHECK(static_cast<ring_loop&>(*loop).capacity() >= 4096);
}

TEST_CASE("in a process that may not use io_uring a loop works and says so on standard error", "[loop]") {
  two_ends said;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!refuse({SYS_io_uring_setup, EPERM})) ::_exit(2);
    ::dup2(said.out.get(), 2);
    forget_lines();
    const auto loop = make_event_loop();
    const auto another = make_event_loop();  // says nothing more
    turns(*loop, 3);
    turns(*another, 3);
    const bool both = std::string(loop->backend()) == "epoll" && std::string(another->backend()) == "epoll";
    ::_exit(both ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) MILLRACE_SKIP("no seccomp here");
  CHECK(WEXITSTATUS(status) == 0);
  char text[512];
  const ssize_t n = ::read(said.in.get(), text, sizeof text);
  REQUIRE(n > 0);
  CHECK(std::string(text, static_cast<std::size_t>(n)) ==
        "millrace: io_uring is not available (Operation not permitted); event loops use epoll\n");
}

/// Leaves the process the descriptors it has, and no more, for a while.
class no_more_descriptors {
 public:
  no_more_descriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{3, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~no_more_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_CASE("no descriptors left is an error, not a crash", "[loop]") {
  if (MILLRACE_ASAN)
    MILLRACE_SKIP("the undefined behaviour sanitizer, which comes with this one, needs descriptors itself");
  const bool epoll = GENERATE(false, true);
  int code = 0;
  try {
    const no_more_descriptors guard;
    const auto loop = make_event_loop({.force_epoll = epoll});
  } catch (const io_error& e) {
    code = e.code();
  }
  CHECK(code == EMFILE);
}

}  // namespace
}  // namespace millrace::test
