// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/loop/ring_loop.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>

#include <millrace/coro/block_on.hpp>
#include <millrace/io/file.hpp>

#include "tests/loop/loops.hpp"
#include "tests/loop/refuse_call.hpp"
#include "tests/support/forget_lines.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

struct lines {
  static void add(void* context, const log_record& r) { static_cast<lines*>(context)->all.emplace_back(r.text); }
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

bool has_ring() {
  int refused = 0;
  return ring_loop::try_make({}, refused) != nullptr;
}

task<std::string> first_bytes(std::string path) {
  file f = co_await file::open(std::move(path));
  writable_bytes memory = writable_bytes::allocate(5);
  const std::size_t n = co_await f.read_at(memory, 0, 5, 0);
  co_await f.close();
  co_return std::string(memory.data(), n);
}

/// An event of a descriptor and a file arrive.
bool works(event_loop& loop) {
  class seen final : public fd_watch {
   public:
    unsigned events = 0;

   protected:
    void ready(unsigned what) noexcept override { events |= what; }
  };
  turns(loop, 3);
  two_ends pipe;
  seen watch;
  loop.watch(watch, pipe.in.get(), POLLIN);
  pipe.write();
  loop.run_until([&] { return watch.events != 0; });
  loop.unwatch(watch);
  return watch.events == POLLIN && block_on(loop, first_bytes("/proc/self/status")) == "Name:";
}

TEST_CASE("in a process that may not use io_uring a loop works and says so on standard error", "[loop]") {
  const long call = GENERATE(long(SYS_io_uring_setup), long(SYS_io_uring_enter), long(SYS_io_uring_register));
  const int error = GENERATE(EPERM, ENOSYS, EACCES);
  INFO("system call " << call << ": " << std::strerror(error));
  if (!has_ring()) MILLRACE_SKIP("io_uring is refused here");
  two_ends said;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!refuse({call, error})) ::_exit(2);
    ::dup2(said.out.get(), 2);
    forget_lines();
    const auto loop = make_event_loop();
    const auto another = make_event_loop();  // says nothing more
    const bool both = std::string(loop->backend()) == "epoll" && std::string(another->backend()) == "epoll";
    ::_exit(both && works(*loop) && works(*another) ? 0 : 1);
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
        std::string("millrace: io_uring is not available (") + std::strerror(error) + "); event loops use epoll\n");
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
