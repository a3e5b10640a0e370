// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loop/make_event_loop.hpp>

#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/loop/loops.hpp"

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

/// From here on io_uring_setup(2) fails in this process.
bool forbid_io_uring() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof filter / sizeof *filter, filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_CASE("in a process that may not use io_uring a loop works and says so on standard error", "[loop]") {
  two_ends said;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!forbid_io_uring()) ::_exit(2);
    ::dup2(said.out.get(), 2);
    const auto loop = make_event_loop();
    turns(*loop, 3);
    ::_exit(std::string(loop->backend()) == "epoll" ? 0 : 1);
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
        "millrace: io_uring is not available (Operation not permitted); this loop uses epoll\n");
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
