// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/loop/ring_loop.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <millrace/coro/block_on.hpp>
#include <millrace/io/file.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/detail/thread.hpp>

#include "tests/loop/loops.hpp"
#include "tests/loop/refuse_call.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/forget_lines.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

struct lines {
  void operator()(const log_record& r) { all.emplace_back(r.text); }
  std::vector<std::string> all;
};

TEST_CASE("a refused ring means epoll, told once", "[loop]") {
  lines log;
  const auto loop = detail::make_loop_without_ring({.log = log}, EPERM);
  CHECK(std::string(loop->backend()) == "epoll");
  turns(*loop, 2);
  REQUIRE(log.all.size() == 1);
  CHECK_THAT(log.all[0], Catch::Matchers::Contains("io_uring is not available (Operation not permitted)"));
  CHECK(log.all[0].find('\n') == std::string::npos);
}

TEST_CASE("epoll by choice says nothing", "[loop]") {
  lines log;
  const auto loop = make_event_loop({.force_epoll = true, .log = log});
  CHECK(std::string(loop->backend()) == "epoll");
  CHECK(log.all.empty());
}

TEST_CASE("a ring, where there is one, says nothing", "[loop]") {
  lines log;
  const auto loop = make_event_loop({.log = log});
  if (std::string(loop->backend()) != "io_uring") MILLRACE_SKIP("io_uring is refused here");
  CHECK(log.all.empty());
  CHECK(static_cast<ring_loop&>(*loop).capacity() >= 4096);
}

bool has_ring() {
  int refused = 0;
  return ring_loop::try_make(refused) != nullptr;
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

TEST_CASE("an epoll loop waits, and files tell their size, where the newer calls for that are refused", "[loop]") {
  const long call = GENERATE(long(SYS_epoll_pwait2), long(SYS_statx));
  const int error = GENERATE(EPERM, ENOSYS, EACCES);
  INFO("system call " << call << ": " << std::strerror(error));
  const auto slept_and_sized = []() -> task<std::uint64_t> {
    co_await sleep_for(std::chrono::milliseconds(1));
    file f = co_await file::open("/proc/self/exe");
    const std::uint64_t size = co_await f.size();
    co_await f.close();
    co_return size;
  };
  bool works_on = false;
  std::uint64_t size = 0;
  const bool filtered = where_refused({call, error}, [&] {
    loop_options epoll;
    epoll.force_epoll = true;
    const auto loop = make_event_loop(epoll);
    works_on = works(*loop);
    size = block_on(*loop, slept_and_sized());
  });
  if (!filtered) MILLRACE_SKIP("no seccomp here");
  CHECK(works_on);
  CHECK(size == std::filesystem::file_size("/proc/self/exe"));
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
    code = e.code().value();
  }
  CHECK(code == EMFILE);
}

// Which kind of ring a loop is made of.

/// 0, or the errno value with which the kernel refuses a ring with these flags; asked without the library.
int refused(unsigned flags) {
  io_uring_params p;
  std::memset(&p, 0, sizeof p);
  p.flags = flags;
  const long fd = ::syscall(SYS_io_uring_setup, 8u, &p);
  if (fd < 0) return errno;
  ::close(static_cast<int>(fd));
  return 0;
}

ring_loop::flavour flavour_of(const event_loop& loop) { return dynamic_cast<const ring_loop&>(loop).ring_flavour(); }

TEST_CASE("a loop is a ring with a single issuer and deferred task run where the kernel has that", "[loop]") {
  const int none = refused(0);
  if (none != 0) MILLRACE_SKIP(std::string("no io_uring here: ") + std::strerror(none));
  const int no_deferral = refused(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
  if (no_deferral != 0) MILLRACE_SKIP(std::string("no deferred task run here: ") + std::strerror(no_deferral));
  const std::unique_ptr<event_loop> loop = make_event_loop();
  CHECK(loop->backend() == std::string("io_uring"));
  CHECK((flavour_of(*loop) == ring_loop::flavour::deferred));
}

TEST_CASE("a ring is of the flavour asked for, where the kernel has it", "[loop]") {
  using flavour = ring_loop::flavour;
  for (const flavour f : {flavour::cooperative, flavour::plain}) {
    if (refused(f == flavour::plain ? 0u : unsigned(IORING_SETUP_COOP_TASKRUN)) != 0) {
      MILLRACE_SKIP("this kernel refuses it");
    }
    int error = 0;
    const std::unique_ptr<ring_loop> loop = ring_loop::try_make(error, f);
    REQUIRE(loop != nullptr);
    CHECK((loop->ring_flavour() == f));
  }
}

constexpr int loops_each = 200;

/// Something that goes through the ring.
task<std::uint64_t> size_of_this() {
  file f = co_await file::open("/proc/self/exe");
  co_return co_await f.size();
}

/// How many loops did what they were asked.
int make_and_end_loops() {
  int worked = 0;
  for (int i = 0; i < loops_each; ++i) {
    const std::unique_ptr<event_loop> loop = make_event_loop();
    if (block_on(*loop, size_of_this()) > 0) ++worked;
  }
  return worked;
}

}  // namespace

// A ring often lies where one of the other thread lay before: the thread sanitizer must know that it is another one.
TEST_CASE("loops that two threads make and end by themselves share nothing") {
  int elsewhere = 0;
  std::thread other([&] { elsewhere = make_and_end_loops(); });
  const int here = make_and_end_loops();
  other.join();
  CHECK(here == loops_each);
  CHECK(elsewhere == loops_each);
}
