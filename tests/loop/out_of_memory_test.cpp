// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Functions that end work of a loop must not throw: they ask for no memory.

#include <millrace/loop/ring_loop.hpp>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <vector>

#include <millrace/base/compiler.hpp>

#include "tests/loop/loops.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/replaced_new.hpp"

#if !MILLRACE_ASAN && !MILLRACE_TSAN

using namespace millrace;

namespace {

thread_local bool none_left = false;  // memory

}  // namespace

bool millrace::test::allocation_fails() noexcept { return none_left; }

namespace {

class never final : public timer_node {
  void fire() noexcept override {}
};
class unheard final : public fd_watch {
  void ready(unsigned) noexcept override {}
};
class job final : public file_operation {
 public:
  using file_operation::file_operation;
  std::int64_t result = 1;

 private:
  void complete(std::int64_t r) noexcept override { result = r; }
};

}  // namespace

TEST_CASE("timers, watches and file operations end where there is no memory") {
  MILLRACE_EACH_LOOP(loop);
  std::array<int, 2> pipe{};
  REQUIRE(::pipe2(pipe.data(), O_CLOEXEC) == 0);
  std::array<never, 50> timers;
  std::array<unheard, 50> watches;
  std::vector<int> descriptors;
  for (unheard& w : watches) {
    descriptors.push_back(::dup(pipe[0]));
    loop.watch(w, descriptors.back(), POLLIN);
  }
  char there = 0;
  file_request r;
  r.fd = pipe[0];
  r.data = &there;
  r.size = 1;
  std::vector<std::unique_ptr<job>> jobs;
  const bool has_thread = kind_of_loop == loop_kind::epoll;  // that would wait for the pipe
  while (!has_thread && jobs.size() < 20) jobs.push_back(std::make_unique<job>(r));
  for (const std::unique_ptr<job>& each : jobs) loop.start(*each);
  test::turns(loop, 3);  // into the kernel

  none_left = true;
  for (never& t : timers) loop.add_timer(t, loop.now() + duration(1'000'000'000));
  for (never& t : timers) loop.remove_timer(t);
  for (unheard& w : watches) loop.unwatch(w);
  for (const std::unique_ptr<job>& each : jobs) loop.cancel(*each);
  loop.drain();
  none_left = false;

  for (const std::unique_ptr<job>& each : jobs) CHECK((each->result == -ECANCELED || each->result == -EINTR));
  CHECK(loop.timers() == 0);
  for (const int fd : {pipe[0], pipe[1]}) descriptors.push_back(fd);
  for (const int fd : descriptors) ::close(fd);
}

#endif
