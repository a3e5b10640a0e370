// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Which kind of ring a loop is made of.

#include <millrace/loop/make_event_loop.hpp>
#include <millrace/loop/ring_loop.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include <linux/io_uring.h>

#include "tests/support/catch.hpp"

namespace millrace {
namespace {

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
    const std::unique_ptr<ring_loop> loop = ring_loop::try_make({}, error, f);
    REQUIRE(loop != nullptr);
    CHECK((loop->ring_flavour() == f));
  }
}

}  // namespace
}  // namespace millrace
