// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The model itself: every misuse of memory is noticed, and what is right is not.

#include "tests/fake_cuda/fake_cuda.hpp"

#include <cerrno>

#include <unistd.h>

#include "tests/cuda/rig.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::rig;

TEST_CASE("the model: reading a batch before waiting for its copy is noticed", "[fake]") {
  rig r;
  r.copy();
  REQUIRE(cudaEventRecord(r.event, r.copies) == cudaSuccess);
  fake_cuda::kernel_read(r.work, r.device, 10);
  CHECK_THAT(r.only_violation(), Contains("race in device memory: kernel read"));
}

TEST_CASE("the model: an event tells of what was enqueued before it, not after it", "[fake]") {
  rig r;
  REQUIRE(cudaEventRecord(r.event, r.copies) == cudaSuccess);
  r.copy();
  SECTION("to a stream") {
    REQUIRE(cudaStreamWaitEvent(r.work, r.event, 0) == cudaSuccess);
    fake_cuda::kernel_read(r.work, r.device, 10);
    CHECK_THAT(r.only_violation(), Contains("race in device memory: kernel read"));
  }
  SECTION("to the host") {
    REQUIRE(cudaEventSynchronize(r.event) == cudaSuccess);
    REQUIRE(cudaFree(r.device) == cudaSuccess);
    CHECK_THAT(r.only_violation(), Contains("device memory freed while a copy"));
  }
}

TEST_CASE("the model: streams may use different bytes of one allocation, and read the same ones", "[fake]") {
  rig r;
  char* const half = static_cast<char*>(r.device) + 500;
  fake_cuda::kernel_write(r.copies, r.device, 500, 'k');
  fake_cuda::kernel_read(r.work, half, 500);
  fake_cuda::kernel_read(r.copies, half, 500);
  CHECK(fake_cuda::violations().empty());
  SECTION("a read that overlaps") {
    fake_cuda::kernel_read(r.work, half - 1, 10);
    CHECK_THAT(r.only_violation(), Contains("not ordered after the kernel write"));
  }
  SECTION("a write that overlaps") {
    fake_cuda::kernel_write(r.work, half - 1, 1, 'w');
    CHECK_THAT(r.only_violation(), Contains("not ordered after the kernel write"));
  }
}

TEST_CASE("the model: copying into memory that a kernel may still read is noticed", "[fake]") {
  rig r;
  fake_cuda::kernel_read(r.work, r.device, 10);
  SECTION("without an event") {
    r.copy();
    CHECK_THAT(r.only_violation(), Contains("not ordered after the kernel read"));
  }
  SECTION("with one") {
    REQUIRE(cudaEventRecord(r.event, r.work) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(r.copies, r.event, 0) == cudaSuccess);
    r.copy();
    CHECK(fake_cuda::violations().empty());
  }
  SECTION("with the host in between") {
    REQUIRE(cudaStreamSynchronize(r.work) == cudaSuccess);
    r.copy();
    CHECK(fake_cuda::violations().empty());
  }
}

TEST_CASE("the model: host memory changed under a pending copy is noticed", "[fake]") {
  rig r;
  r.copy();
  static_cast<char*>(r.pinned)[500] = 'b';
  REQUIRE(cudaStreamSynchronize(r.copies) == cudaSuccess);
  CHECK_THAT(r.only_violation(), Contains("host memory changed"));
}

TEST_CASE("the model: memory freed too early is noticed and poisoned", "[fake]") {
  rig r;
  r.copy();
  SECTION("pinned") {
    REQUIRE(cudaFreeHost(r.pinned) == cudaSuccess);
    CHECK_THAT(r.only_violation(), Contains("pinned memory freed while a copy"));
    CHECK(static_cast<unsigned char*>(r.pinned)[0] == 0xdb);
  }
  SECTION("device") {
    REQUIRE(cudaFree(r.device) == cudaSuccess);
    CHECK_THAT(r.only_violation(), Contains("device memory freed while a copy"));
  }
  SECTION("after the device has done it, but before the host could know") {
    while (fake_cuda::step()) {
    }
    REQUIRE(cudaFree(r.device) == cudaSuccess);
    CHECK_THAT(r.only_violation(), Contains("may still use it"));
  }
  SECTION("in time") {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    REQUIRE(cudaFree(r.device) == cudaSuccess);
    REQUIRE(cudaFreeHost(r.pinned) == cudaSuccess);
    CHECK(fake_cuda::violations().empty());
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("the model: use after free, twice freed, foreign pointers", "[fake]") {
  rig r;
  SECTION("copy to freed memory") {
    REQUIRE(cudaFree(r.device) == cudaSuccess);
    CHECK(cudaMemcpyAsync(r.device, r.pinned, 1, cudaMemcpyHostToDevice, r.copies) == cudaErrorInvalidValue);
    CHECK_THAT(r.only_violation(), Contains("that is freed"));
  }
  SECTION("freed twice") {
    REQUIRE(cudaFree(r.device) == cudaSuccess);
    CHECK(cudaFree(r.device) == cudaErrorInvalidValue);
    CHECK_THAT(r.only_violation(), Contains("freed already"));
  }
  SECTION("freed by the wrong function") {
    CHECK(cudaFreeHost(r.device) == cudaErrorInvalidValue);
    CHECK_THAT(r.only_violation(), Contains("did not give out"));
  }
  SECTION("written after it was freed") {
    REQUIRE(cudaFreeHost(r.pinned) == cudaSuccess);
    static_cast<char*>(r.pinned)[3] = 'x';
    CHECK_THAT(r.only_violation(), Contains("written after it was freed"));
  }
  SECTION("beyond the end") {
    CHECK(cudaMemcpyAsync(r.device, r.pinned, r.size + 1, cudaMemcpyHostToDevice, r.copies) == cudaErrorInvalidValue);
    CHECK_THAT(r.only_violation(), Contains("leaves an allocation of 1000 bytes"));
  }
  SECTION("beyond the end of one that fills its pages") {
    void* page = nullptr;
    REQUIRE(cudaMalloc(&page, 4096) == cudaSuccess);
    CHECK(cudaMemcpyAsync(static_cast<char*>(page) + 4096, r.pinned, 1, cudaMemcpyHostToDevice, r.copies) ==
          cudaErrorInvalidValue);
    CHECK_THAT(r.only_violation(), Contains("leaves an allocation of 4096 bytes"));
  }
  SECTION("the wrong direction") {
    CHECK(cudaMemcpyAsync(r.device, r.pinned, 1, cudaMemcpyDeviceToHost, r.copies) == cudaErrorInvalidMemcpyDirection);
    CHECK_THAT(r.only_violation(), Contains("direction"));
  }
}

TEST_CASE("the model: the host cannot touch device memory", "[fake]") {
  rig r;
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  CHECK(::write(pipe_ends[1], r.pinned, 1) == 1);
  CHECK(::write(pipe_ends[1], r.device, 1) == -1);
  CHECK(errno == EFAULT);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST_CASE("the model: nothing is zero by chance, nor there before its copy", "[fake]") {
  rig r;
  const auto* const there = static_cast<const char*>(r.pinned);
  CHECK(fake_cuda::peek(r.device, 1)[0] != '\0');
  REQUIRE(cudaMemsetAsync(r.device, 'z', r.size, r.copies) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(r.pinned, r.device, r.size, cudaMemcpyDeviceToHost, r.copies) == cudaSuccess);
  CHECK(there[0] != 'a');
  CHECK(there[0] != 'z');
  REQUIRE(cudaStreamSynchronize(r.copies) == cudaSuccess);
  CHECK(there[0] == 'z');
}
