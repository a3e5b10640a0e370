// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The model itself: what happens when, handles, errors; fake_memory_test.cpp is about its memory.

#include "tests/fake_cuda/fake_cuda.hpp"

#include <vector>

#include "tests/cuda/rig.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::rig;

TEST_CASE("the model: a copy happens late, and a polled event tells when", "[fake]") {
  fake_cuda::options with;
  with.polls_before_ready = 2;
  rig r(with);
  r.copy();
  REQUIRE(cudaEventRecord(r.event, r.copies) == cudaSuccess);
  CHECK(fake_cuda::now().copies == 0);
  CHECK(cudaEventQuery(r.event) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(cudaEventQuery(r.event) == cudaErrorNotReady);
  CHECK(fake_cuda::peek(r.device, 2) != "aa");
  CHECK(cudaEventQuery(r.event) == cudaSuccess);
  CHECK(cudaEventQuery(r.event) == cudaSuccess);
  CHECK(fake_cuda::peek(r.device, 2) == "aa");
  CHECK(fake_cuda::violations().empty());
}

TEST_CASE("the model: work that is done may be reported late, too", "[fake]") {
  fake_cuda::options with;
  with.polls_before_ready = 1;
  rig r(with);
  r.copy();
  REQUIRE(cudaEventRecord(r.event, r.copies) == cudaSuccess);
  while (fake_cuda::step()) {
  }
  CHECK(fake_cuda::now().copies == 1);
  CHECK(cudaEventQuery(r.event) == cudaErrorNotReady);
  CHECK(cudaEventQuery(r.event) == cudaSuccess);
  REQUIRE(cudaFree(r.device) == cudaSuccess);  // a query that says so is enough to know
  CHECK(fake_cuda::violations().empty());
}

TEST_CASE("the model: work may happen early, before any query", "[fake]") {
  fake_cuda::options with;
  with.early_percent = 100;
  rig r(with);
  r.copy();
  CHECK(fake_cuda::now().copies == 0);
  REQUIRE(cudaEventRecord(r.event, r.copies) == cudaSuccess);
  CHECK(fake_cuda::now().copies == 1);
}

TEST_CASE("the model: synchronising makes exactly what it must happen", "[fake]") {
  rig r;
  r.copy();
  REQUIRE(cudaEventRecord(r.event, r.copies) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(r.device, 'z', 1, r.copies) == cudaSuccess);
  CHECK(cudaEventSynchronize(r.event) == cudaSuccess);
  CHECK(cudaEventQuery(r.event) == cudaSuccess);
  CHECK(fake_cuda::peek(r.device, 1) == "a");
  CHECK(fake_cuda::now().pending == 1);
  CHECK(cudaStreamSynchronize(r.copies) == cudaSuccess);
  CHECK(fake_cuda::peek(r.device, 1) == "z");
  CHECK(cudaStreamQuery(r.copies) == cudaSuccess);
  CHECK(fake_cuda::violations().empty());
}

TEST_CASE("the model: a plain copy has happened when it returns", "[fake]") {
  rig r;
  REQUIRE(cudaMemcpy(r.device, r.pinned, r.size, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(fake_cuda::peek(r.device, 1) == "a");
  REQUIRE(cudaFree(r.device) == cudaSuccess);
  CHECK(fake_cuda::violations().empty());
}

TEST_CASE("the model: a waiting stream carries the work of the other one with it", "[fake]") {
  rig r;
  r.copy();
  REQUIRE(cudaEventRecord(r.event, r.copies) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(r.work, r.event, 0) == cudaSuccess);
  fake_cuda::kernel_read(r.work, r.device, r.size);
  REQUIRE(cudaStreamSynchronize(r.work) == cudaSuccess);
  CHECK(fake_cuda::now().copies == 1);
  CHECK(fake_cuda::violations().empty());
}

TEST_CASE("the model: handles used after they are destroyed are noticed", "[fake]") {
  rig r;
  SECTION("stream") {
    REQUIRE(cudaStreamDestroy(r.copies) == cudaSuccess);
    CHECK(cudaStreamQuery(r.copies) == cudaErrorInvalidResourceHandle);
    CHECK_THAT(r.only_violation(), Contains("destroyed"));
  }
  SECTION("event") {
    REQUIRE(cudaEventDestroy(r.event) == cudaSuccess);
    CHECK(cudaEventRecord(r.event, r.copies) == cudaErrorInvalidResourceHandle);
    CHECK_THAT(r.only_violation(), Contains("destroyed"));
  }
  SECTION("destroying with work pending is right, and the work still happens") {
    r.copy();
    REQUIRE(cudaEventRecord(r.event, r.copies) == cudaSuccess);
    REQUIRE(cudaStreamDestroy(r.copies) == cudaSuccess);
    REQUIRE(cudaEventSynchronize(r.event) == cudaSuccess);
    CHECK(fake_cuda::peek(r.device, 1) == "a");
    CHECK(fake_cuda::violations().empty());
  }
}

TEST_CASE("the model: a call inside a host callback is noticed", "[fake]") {
  rig r;
  REQUIRE(cudaLaunchHostFunc(
              r.copies, [](void* s) { cudaStreamQuery(static_cast<cudaStream_t>(s)); }, r.work) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(r.copies) == cudaSuccess);
  CHECK_THAT(r.only_violation(), Contains("cudaStreamQuery called inside a host callback"));
}

TEST_CASE("the model: pageable copies are staged at the call and counted", "[fake]") {
  rig r;
  std::vector<char> ordinary(r.size, 'p');
  REQUIRE(cudaMemcpyAsync(r.device, ordinary.data(), r.size, cudaMemcpyHostToDevice, r.copies) == cudaSuccess);
  ordinary.assign(r.size, 'q');
  REQUIRE(cudaStreamSynchronize(r.copies) == cudaSuccess);
  CHECK(fake_cuda::peek(r.device, 1) == "p");
  CHECK(fake_cuda::now().pageable_copies == 1);
  CHECK(fake_cuda::violations().empty());
}

TEST_CASE("the model: the n-th call fails, and a sticky error stays", "[fake]") {
  rig r;
  fake_cuda::fail_call("cudaStreamQuery", 1, cudaErrorMemoryAllocation);
  CHECK(cudaStreamQuery(r.copies) == cudaErrorMemoryAllocation);
  CHECK(cudaStreamQuery(r.copies) == cudaSuccess);
  CHECK(fake_cuda::calls("cudaStreamQuery") == 2);
  fake_cuda::fail_call("cudaEventRecord", 2, cudaErrorIllegalAddress, true);
  CHECK(cudaEventRecord(r.event, r.copies) == cudaSuccess);
  CHECK(cudaEventRecord(r.event, r.copies) == cudaErrorIllegalAddress);
  CHECK(cudaStreamQuery(r.copies) == cudaErrorIllegalAddress);
  CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);
}

TEST_CASE("the model: what is not given back is reported", "[fake]") {
  {
    rig r;
    CHECK(fake_cuda::leaks() == "2 streams, 1 events, 1 pinned allocations, 1 device allocations");
    REQUIRE(cudaEventDestroy(r.event) == cudaSuccess);
    REQUIRE(cudaFree(r.device) == cudaSuccess);
    CHECK(fake_cuda::leaks() == "2 streams, 1 pinned allocations");
    REQUIRE(cudaStreamDestroy(r.work) == cudaSuccess);
    CHECK(fake_cuda::leaks() == "1 streams, 1 pinned allocations");
  }
  CHECK(fake_cuda::leaks() == "");
}

TEST_CASE("the model: events belong to their device", "[fake]") {
  fake_cuda::options with;
  with.device_count = 2;
  rig r(with);
  cudaEvent_t other = nullptr;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&other, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaEventRecord(other, r.copies) == cudaErrorInvalidResourceHandle);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("the model: every device has a default stream of its own", "[fake]") {
  fake_cuda::options with;
  with.device_count = 2;
  rig r(with);
  REQUIRE(cudaEventRecord(r.event, nullptr) == cudaSuccess);
  cudaEvent_t other = nullptr;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&other, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaEventRecord(other, nullptr) == cudaSuccess);
  CHECK(cudaEventRecord(r.event, nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(fake_cuda::now().streams == 2);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("the model: a device has a context from its first use on", "[fake]") {
  fake_cuda::options with;
  with.device_count = 2;
  fake_cuda::reset(with);
  int n = 0;
  REQUIRE(cudaGetDeviceCount(&n) == cudaSuccess);
  CHECK(n == 2);
  CHECK(fake_cuda::now().contexts == 0);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(fake_cuda::now().contexts == 1);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(fake_cuda::now().contexts == 2);
  fake_cuda::reset();
}

TEST_CASE("the model: a query ends another thread's capture, unless the thread is relaxed", "[fake]") {
  rig r;
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(r.work, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaEventQuery(r.event) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(r.work, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(r.work, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaEventQuery(r.event) == cudaSuccess);
  CHECK(cudaStreamEndCapture(r.work, &graph) == cudaSuccess);
}

TEST_CASE("the model: a stream that captures is known, and what is enqueued on it noticed", "[fake]") {
  rig r;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(r.work, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  REQUIRE(cudaStreamIsCapturing(r.work, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  REQUIRE(cudaStreamIsCapturing(r.copies, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusNone);
  REQUIRE(cudaEventRecord(r.event, r.work) == cudaSuccess);
  CHECK_THAT(r.only_violation(), Contains("record on a stream that captures a graph"));
  REQUIRE(cudaStreamEndCapture(r.work, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("the model: a host that spins is noticed", "[fake]") {
  rig r;
  cudaEvent_t sleeps = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&sleeps, cudaEventDisableTiming | cudaEventBlockingSync) == cudaSuccess);
  r.copy();
  REQUIRE(cudaEventRecord(sleeps, r.copies) == cudaSuccess);
  REQUIRE(cudaEventRecord(r.event, r.copies) == cudaSuccess);
  REQUIRE(cudaEventSynchronize(sleeps) == cudaSuccess);
  CHECK(fake_cuda::now().spun == 0);
  REQUIRE(cudaEventSynchronize(r.event) == cudaSuccess);
  REQUIRE(cudaEventSynchronize(r.event) == cudaSuccess);  // done already
  CHECK(fake_cuda::now().spun == 1);
}

TEST_CASE("the model: no pinned memory of no bytes, nor more than there is", "[fake]") {
  fake_cuda::options with;
  with.largest_allocation = rig::size;
  rig r(with);
  void* nothing = nullptr;
  CHECK(cudaHostAlloc(&nothing, 0, cudaHostAllocPortable) == cudaErrorInvalidValue);
  CHECK(cudaHostAlloc(&nothing, r.size + 1, cudaHostAllocPortable) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&nothing, r.size + 1) == cudaErrorMemoryAllocation);
  CHECK(nothing == nullptr);
}

TEST_CASE("the model: a kernel's failure is reported by a later call, and by all after it", "[fake]") {
  rig r;
  fake_cuda::kernel_fault(r.work, cudaErrorIllegalAddress);
  CHECK(cudaEventRecord(r.event, r.copies) == cudaSuccess);
  CHECK(cudaEventSynchronize(r.event) == cudaSuccess);  // of another stream: the kernel's turn has not come
  CHECK(cudaStreamSynchronize(r.work) == cudaErrorIllegalAddress);
  CHECK(cudaEventQuery(r.event) == cudaErrorIllegalAddress);
  CHECK(cudaMemcpyAsync(r.device, r.pinned, 1, cudaMemcpyHostToDevice, r.copies) == cudaErrorIllegalAddress);
  CHECK(cudaEventDestroy(r.event) == cudaErrorIllegalAddress);
  CHECK(cudaFree(r.device) == cudaErrorIllegalAddress);
  CHECK(fake_cuda::leaks() == "2 streams, 1 pinned allocations");
  CHECK(fake_cuda::violations().empty());
}

TEST_CASE("the model: without a device every call says so", "[fake]") {
  fake_cuda::options with;
  with.device_count = 0;
  with.no_device_error = cudaErrorInsufficientDriver;
  fake_cuda::reset(with);
  int n = 7;
  CHECK(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver);
  CHECK(n == 7);
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 1) == cudaErrorInsufficientDriver);
  fake_cuda::reset();
}

TEST_CASE("the model: independent streams run in an order of the seed's choosing", "[fake]") {
  const auto order = [](std::uint64_t seed) {
    fake_cuda::options with;
    with.seed = seed;
    rig r(with);
    std::string ran;
    struct note {
      std::string* to;
      char c;
    };
    std::vector<note> notes;
    for (char c : {'a', 'A', 'b', 'B', 'c', 'C'}) notes.push_back({&ran, c});
    for (note& n : notes) {
      const auto append = [](void* p) {
        auto* self = static_cast<note*>(p);
        self->to->push_back(self->c);
      };
      cudaLaunchHostFunc(n.c >= 'a' ? r.copies : r.work, append, &n);
    }
    cudaDeviceSynchronize();
    return ran;
  };
  CHECK(order(5) == order(5));
  bool differ = false;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const std::string ran = order(seed);
    CHECK(ran.find('a') < ran.find('b'));
    CHECK(ran.find('B') < ran.find('C'));
    if (ran != order(5)) differ = true;
  }
  CHECK(differ);
}
