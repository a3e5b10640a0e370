// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A run where io_uring is refused.

#include <millrace/loader/run.hpp>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>

#include "tests/loop/refuse_call.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/forget_lines.hpp"

using namespace millrace;

namespace {

/// What is written to standard error meanwhile; the pipe holds 64 KiB.
class overheard {
 public:
  overheard() {
    test::forget_lines();
    REQUIRE(::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) == 0);
    REQUIRE(before_ >= 0);
    REQUIRE(::dup2(pipe_[1], 2) == 2);
  }
  ~overheard() {
    ::dup2(before_, 2);
    for (int fd : {before_, pipe_[0], pipe_[1]}) ::close(fd);
  }
  std::string text() {
    std::string all;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(pipe_[0], buffer, sizeof buffer)) > 0;) {
      all.append(buffer, static_cast<std::size_t>(n));
    }
    return all;
  }

 private:
  const int before_ = ::fcntl(2, F_DUPFD_CLOEXEC, 3);
  int pipe_[2] = {-1, -1};
};

}  // namespace

TEST_CASE("runs of several loops, one after another, say in one line that io_uring is refused") {
  for (const unsigned loops : {1u, 3u}) {
    int items = 0;
    int epoch_2 = 0;
    bool refused = false;
    std::string said;
    {
      overheard errors;
      refused = test::where_refused({SYS_io_uring_setup, EPERM}, [&] {
        for (int i : run(iota(5), {.show = progress::off}, {.loops = loops})) items += i == items ? 1 : 0;
        for (int i : run(iota(5), {.show = progress::off}, {.loops = loops})) epoch_2 += i == epoch_2 ? 1 : 0;
      });
      said = errors.text();
    }
    if (!refused) MILLRACE_SKIP("no seccomp here");
    CHECK(items == 5);
    CHECK(epoch_2 == 5);
    CHECK(said == "millrace: io_uring is not available (Operation not permitted); event loops use epoll\n");
  }
}
