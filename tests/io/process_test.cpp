// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/process.hpp>

#include <fcntl.h>
#include <sys/wait.h>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include <memory>
#include <string>

#include "tests/loop/refuse_call.hpp"
#include "tests/support/catch.hpp"

namespace {

using Catch::Matchers::Contains;
using millrace::block_on;
using millrace::process_result;
using millrace::run_process;

constexpr millrace::duration minute(60'000'000'000);

std::unique_ptr<millrace::event_loop> make_loop(bool ring) {
  millrace::loop_options options;
  options.force_epoll = !ring;
  return millrace::make_event_loop(options);
}

/// A pipe whose writing end every process of this test inherits: it ends when they have.
class lifeline {
 public:
  lifeline() {
    if (::pipe(ends_) != 0) throw std::runtime_error("pipe");
    ::fcntl(ends_[0], F_SETFD, FD_CLOEXEC);
  }
  ~lifeline() {
    ::close(ends_[0]);
    if (ends_[1] >= 0) ::close(ends_[1]);
  }
  /// Returns when no process is left.
  void wait_for_end() {
    ::close(ends_[1]);
    ends_[1] = -1;
    char c;
    while (::read(ends_[0], &c, 1) > 0) {
    }
  }

 private:
  int ends_[2];
};

}  // namespace

TEST_CASE("a command's output and status come back", "[io][process]") {
  for (const bool ring : {true, false}) {
    const auto loop = make_loop(ring);
    process_result r = block_on(*loop, run_process("printf 'a b'; printf c | tr c d; exit 7", minute, 100));
    CHECK(r.output == "a bd");
    CHECK(r.exit_status == 7);
    CHECK_FALSE(r.too_long);
    CHECK(block_on(*loop, run_process("kill -9 $$", minute, 100)).exit_status == -1);
    CHECK(block_on(*loop, run_process("no-such-command-anywhere 2>/dev/null", minute, 100)).exit_status == 127);
    // Standard input is empty and not ours.
    CHECK(block_on(*loop, run_process("cat; echo end", minute, 100)).output == "end\n");
    CHECK(block_on(*loop, run_process("exec >&-; exit 3", minute, 100)).exit_status == 3);
    CHECK(block_on(*loop, run_process("echo now", millrace::duration::max(), 100)).output == "now\n");
    CHECK(block_on(*loop, run_process("head -c 65536 /dev/zero", minute, 65536)).output.size() == 65536);
    CHECK(loop->frames() == 0);
    CHECK(loop->timers() == 0);
  }
}

TEST_CASE("a command that writes too much, or takes too long, is killed with what it has started", "[io][process]") {
  for (const bool ring : {true, false}) {
    const auto loop = make_loop(ring);
    {
      lifeline alive;
      CHECK(block_on(*loop, run_process("sleep 1000 & cat /dev/zero", minute, 65536)).too_long);
      alive.wait_for_end();
    }
    {
      lifeline alive;
      CHECK_THROWS_WITH(block_on(*loop, run_process("sleep 1000 & sleep 1000", millrace::duration(2'000'000), 100)),
                        Contains("not done within 2 ms"));
      alive.wait_for_end();
    }
    {
      lifeline alive;  // what is left behind when the command itself has ended
      CHECK(block_on(*loop, run_process("sleep 1000 & echo done", minute, 100)).output == "done\n");
      alive.wait_for_end();
    }
  }
}

TEST_CASE("dropping a command kills it", "[io][process]") {
  for (const bool ring : {true, false}) {
    for (const bool written : {false, true}) {
      const auto loop = make_loop(ring);
      lifeline alive;
      millrace::spawned<process_result> running(*loop, run_process("echo 1; sleep 1000", minute, 100));
      // Asked before the kernel is waited for, and again when it has reported the output; or soon, where the output was
      // there at the first look.
      struct nudge final : millrace::timer_node {
        void fire() noexcept override {}
      } soon;
      loop->add_timer(soon, loop->now() + millrace::duration(50'000'000));
      int asked = 0;
      loop->run_until([&] { return ++asked > (written ? 2 : 1); });
      loop->remove_timer(soon);
      running = millrace::spawned<process_result>();
      loop->drain();
      alive.wait_for_end();
      CHECK(loop->timers() == 0);
    }
  }
}

// A killed process that waits for a disk has not ended yet. Here every one is taken for such: a wait for its end
// is refused, and has reaped nothing.
TEST_CASE("a process that is killed is reaped without a wait for its end", "[io][process]") {
  for (const bool ring : {true, false}) {
    bool reaped = false;
    const bool ran = millrace::test::where_refused({SYS_wait4, EPERM, 0, 2}, [&] {
      const auto loop = make_loop(ring);
      try {
        block_on(*loop, run_process("exec sleep 1000", millrace::duration(2'000'000), 100));
      } catch (const millrace::io_error&) {
        siginfo_t end;
        ::waitid(P_ALL, 0, &end, WEXITED | WNOWAIT);  // a busy machine takes its time to kill
        loop->drain();
        reaped = ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
      }
    });
    if (!ran) MILLRACE_SKIP("no system call can be made to fail here");
    CHECK(reaped);
  }
}
