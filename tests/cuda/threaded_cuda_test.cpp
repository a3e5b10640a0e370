// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The model of threads itself: what it promises, what it does not, and what it notices.

#include "tests/threaded_cuda/threaded_cuda.hpp"

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <millrace/base/compiler.hpp>

#include "tests/cuda/kernels.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

/// A fresh model with a little of everything in it, and a gate that holds streams back.
struct bench {
  bench() {
    threaded_cuda::reset();
    __atomic_store_n(&gate, 0, __ATOMIC_RELAXED);
    REQUIRE(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaHostAlloc(&pinned, size, cudaHostAllocPortable) == cudaSuccess);
    REQUIRE(cudaMalloc(&device, size) == cudaSuccess);
    std::memset(pinned, 'a', size);
    static_cast<void>(cudaGetLastError());
  }
  ~bench() {
    open();
    threaded_cuda::reset();
  }
  void hold(cudaStream_t s) { test::launch_hold(s, &gate, std::chrono::nanoseconds(std::chrono::seconds(2)).count()); }
  void open() { __atomic_store_n(&gate, 1, __ATOMIC_RELAXED); }
  void copy() { REQUIRE(cudaMemcpyAsync(device, pinned, size, cudaMemcpyHostToDevice, copies) == cudaSuccess); }
  /// What the device has, as a stream finds it.
  std::string read(cudaStream_t s, std::size_t n = 1) const {
    std::string text(n, '?');
    REQUIRE(cudaMemcpyAsync(text.data(), device, n, cudaMemcpyDeviceToHost, s) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(s) == cudaSuccess);
    return text;
  }
  static std::string only_violation() {
    const auto all = threaded_cuda::violations();
    REQUIRE(all.size() == 1);
    return all[0];
  }

  static constexpr std::size_t size = 1000;
  static inline int gate = 0;  // read by threads that end unseen: of no stack
  cudaStream_t copies = nullptr, work = nullptr;
  cudaEvent_t event = nullptr;
  void* pinned = nullptr;
  void* device = nullptr;
};

}  // namespace

TEST_CASE("threads: page-locked memory is read when the stream gets there, ordinary memory by the call", "[threads]") {
  bench b;
  std::vector<char> ordinary(b.size, 'p');
  b.hold(b.copies);
#if !MILLRACE_TSAN  // a race, as the model means it to be
  SECTION("page-locked") {
    b.copy();
    std::memset(b.pinned, 'b', b.size);
    b.open();
    CHECK(b.read(b.copies) == "b");
  }
#endif
  SECTION("ordinary") {
    REQUIRE(cudaMemcpyAsync(b.device, ordinary.data(), b.size, cudaMemcpyHostToDevice, b.copies) == cudaSuccess);
    ordinary.assign(b.size, 'q');
    b.open();
    CHECK(b.read(b.copies) == "p");
  }
  CHECK(threaded_cuda::violations().empty());
}

TEST_CASE("threads: a mark is reached after the work before it, and no earlier", "[threads]") {
  bench b;
  CHECK(cudaEventQuery(b.event) == cudaSuccess);  // never recorded
  b.hold(b.copies);
  b.copy();
  REQUIRE(cudaEventRecord(b.event, b.copies) == cudaSuccess);
  CHECK(cudaEventQuery(b.event) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(b.copies) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(b.work) == cudaSuccess);
  CHECK(cudaPeekAtLastError() == cudaErrorNotReady);
  b.open();
  CHECK(cudaEventSynchronize(b.event) == cudaSuccess);
  CHECK(cudaEventQuery(b.event) == cudaSuccess);
  CHECK(static_cast<const char*>(b.device)[0] == 'a');
}

TEST_CASE("threads: who waits for a mark waits for it as it was last recorded", "[threads]") {
  bench b;
  b.hold(b.copies);
  b.copy();
  REQUIRE(cudaEventRecord(b.event, b.copies) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(b.work, b.event, 0) == cudaSuccess);
  REQUIRE(cudaEventRecord(b.event, b.copies) == cudaSuccess);  // moved, and then destroyed: the wait stays
  REQUIRE(cudaEventDestroy(b.event) == cudaSuccess);
  CHECK(cudaStreamQuery(b.work) == cudaErrorNotReady);
  b.open();
  CHECK(b.read(b.work) == "a");
  CHECK(threaded_cuda::violations().empty());
}

TEST_CASE("threads: a destroyed stream still does its work", "[threads]") {
  bench b;
  b.hold(b.copies);
  b.copy();
  REQUIRE(cudaEventRecord(b.event, b.copies) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(b.copies) == cudaSuccess);
  b.open();
  REQUIRE(cudaEventSynchronize(b.event) == cudaSuccess);
  CHECK(b.read(b.work) == "a");
  CHECK(cudaStreamQuery(b.copies) == cudaErrorInvalidResourceHandle);
  CHECK_THAT(b.only_violation(), Contains("destroyed"));
}

TEST_CASE("threads: freeing waits for nothing, and spoils the bytes", "[threads]") {
  bench b;
  b.hold(b.copies);
  b.copy();
#if !MILLRACE_TSAN
  SECTION("of the device") {
    REQUIRE(cudaFree(b.device) == cudaSuccess);
    CHECK(static_cast<const unsigned char*>(b.device)[0] == 0xdb);
    b.open();
    const auto wrong = threaded_cuda::violations();
    REQUIRE(wrong.size() == 2);
    CHECK_THAT(wrong[0], Contains("a copy uses device memory that is freed"));
    CHECK_THAT(wrong[1], Contains("device memory written after it was freed"));
  }
  SECTION("of the host") {
    REQUIRE(cudaFreeHost(b.pinned) == cudaSuccess);
    b.open();
    CHECK(b.read(b.copies) == "\xdb");
    CHECK_THAT(b.only_violation(), Contains("a copy uses page-locked memory that is freed"));
  }
#endif
  SECTION("in time") {
    b.open();
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    REQUIRE(cudaFree(b.device) == cudaSuccess);
    REQUIRE(cudaFreeHost(b.pinned) == cudaSuccess);
    CHECK(threaded_cuda::violations().empty());
  }
}

TEST_CASE("threads: memory that a stream allocates and frees is spoilt in its order", "[threads]") {
  bench b;
  void* memory = nullptr;
  b.hold(b.work);
  REQUIRE(cudaMallocAsync(&memory, 8, b.work) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 'x', 8, b.work) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(b.device, memory, 8, cudaMemcpyDeviceToDevice, b.work) == cudaSuccess);
  REQUIRE(cudaFreeAsync(memory, b.work) == cudaSuccess);
  CHECK(cudaStreamQuery(b.work) == cudaErrorNotReady);  // and the call has returned
  b.open();
  CHECK(b.read(b.work) == "x");
  CHECK(static_cast<const unsigned char*>(memory)[0] == 0xdb);
  CHECK(threaded_cuda::violations().empty());
  CHECK(cudaFreeAsync(memory, b.work) == cudaErrorInvalidValue);
  CHECK_THAT(b.only_violation(), Contains("cudaFreeAsync"));
}

TEST_CASE("threads: the legacy default stream has an order with blocking streams only", "[threads]") {
  bench b;
  cudaStream_t blocking = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault) == cudaSuccess);
  SECTION("it waits for them") {
    b.hold(blocking);
    REQUIRE(cudaMemsetAsync(b.device, 'z', 1, nullptr) == cudaSuccess);
    CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
    b.open();
    CHECK(cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess);
  }
  SECTION("they wait for it") {
    b.hold(nullptr);
    REQUIRE(cudaMemsetAsync(b.device, 'z', 1, blocking) == cudaSuccess);
    CHECK(cudaStreamQuery(blocking) == cudaErrorNotReady);
    REQUIRE(cudaMemsetAsync(static_cast<char*>(b.device) + 8, 'z', 1, cudaStreamPerThread) == cudaSuccess);
    CHECK(cudaStreamQuery(cudaStreamPerThread) == cudaErrorNotReady);
    b.open();
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
  }
  SECTION("others do not") {
    b.hold(nullptr);
    REQUIRE(cudaMemsetAsync(b.device, 'z', 1, b.work) == cudaSuccess);
    CHECK(cudaStreamSynchronize(b.work) == cudaSuccess);
    CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  }
  CHECK(threaded_cuda::violations().empty());
}

TEST_CASE("threads: the default stream per thread is another one on every thread", "[threads]") {
  bench b;
  b.hold(cudaStreamPerThread);
  cudaError_t elsewhere = cudaErrorUnknown;
  std::thread([&] { elsewhere = cudaStreamQuery(cudaStreamPerThread); }).join();
  CHECK(elsewhere == cudaSuccess);
  CHECK(cudaStreamQuery(cudaStreamPerThread) == cudaErrorNotReady);
}

TEST_CASE("threads: a plain copy from page-locked memory is done when it returns", "[threads]") {
  bench b;
  REQUIRE(cudaMemcpy(b.device, b.pinned, b.size, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(static_cast<const char*>(b.device)[b.size - 1] == 'a');
  char back[4] = {};
  REQUIRE(cudaMemcpy(back, b.device, 4, cudaMemcpyDefault) == cudaSuccess);
  CHECK(std::string(back, 4) == "aaaa");
}

TEST_CASE("threads: host functions run in their stream's order, and may not call the runtime", "[threads]") {
  bench b;
  b.copy();
  char found = '?';
  struct argument {
    const void* device;
    char* found;
  } a{b.device, &found};
  const auto look = [](void* p) {
    auto* self = static_cast<argument*>(p);
    *self->found = *static_cast<const char*>(self->device);
  };
  REQUIRE(cudaLaunchHostFunc(b.copies, look, &a) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(b.copies) == cudaSuccess);
  CHECK(found == 'a');
  CHECK(threaded_cuda::violations().empty());
  const auto ask = [](void* s) { static_cast<void>(cudaStreamQuery(static_cast<cudaStream_t>(s))); };
  REQUIRE(cudaLaunchHostFunc(b.copies, ask, b.work) == cudaSuccess);
  CHECK_THAT(b.only_violation(), Contains("cudaStreamQuery called inside a host function"));
}

TEST_CASE("threads: calls that cannot be right get the documented code", "[threads]") {
  bench b;
  CHECK(cudaSetDevice(threaded_cuda::device_count) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaSuccess);
  void* none = nullptr;
  CHECK(cudaMalloc(&none, std::size_t(1) << 60) == cudaErrorMemoryAllocation);
  CHECK(std::string(cudaGetErrorName(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
  CHECK(cudaLaunchKernel(b.device, dim3(1), dim3(1), nullptr, 0, b.work) == cudaErrorInvalidDeviceFunction);
  cudaEvent_t other = nullptr;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&other, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaEventRecord(other, b.copies) == cudaErrorInvalidResourceHandle);  // of another device
  CHECK(cudaStreamWaitEvent(b.copies, other, 0) == cudaSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(threaded_cuda::violations().empty());
  SECTION("freed twice") {
    REQUIRE(cudaFree(b.device) == cudaSuccess);
    CHECK(cudaFree(b.device) == cudaErrorInvalidValue);
    CHECK_THAT(b.only_violation(), Contains("freed already"));
  }
  SECTION("freed by the wrong function") {
    CHECK(cudaFreeHost(b.device) == cudaErrorInvalidValue);
    CHECK_THAT(b.only_violation(), Contains("did not give out"));
  }
  SECTION("beyond the end") {
    CHECK(cudaMemcpyAsync(b.device, b.pinned, b.size + 1, cudaMemcpyHostToDevice, b.work) == cudaErrorInvalidValue);
    CHECK_THAT(b.only_violation(), Contains("leaves its allocation"));
  }
  SECTION("the wrong direction") {
    CHECK(cudaMemcpyAsync(b.device, b.pinned, 1, cudaMemcpyDeviceToHost, b.work) == cudaErrorInvalidValue);
    CHECK_THAT(b.only_violation(), Contains("direction"));
  }
  SECTION("an event that is gone") {
    REQUIRE(cudaEventDestroy(b.event) == cudaSuccess);
    CHECK(cudaEventRecord(b.event, b.work) == cudaErrorInvalidResourceHandle);
    CHECK_THAT(b.only_violation(), Contains("destroyed"));
  }
}

TEST_CASE("threads: what is captured does not run", "[threads]") {
  bench b;
  cudaGraph_t graph = nullptr;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  REQUIRE(cudaStreamBeginCapture(b.copies, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  b.copy();
  REQUIRE(cudaEventRecord(b.event, b.copies) == cudaSuccess);
  REQUIRE(cudaStreamIsCapturing(b.copies, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  REQUIRE(cudaStreamIsCapturing(b.work, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusNone);
  SECTION("to the end") {
    REQUIRE(cudaStreamWaitEvent(b.work, b.event, 0) == cudaSuccess);  // joins
    REQUIRE(cudaStreamIsCapturing(b.work, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusActive);
    CHECK(cudaStreamEndCapture(b.work, &graph) == cudaErrorStreamCaptureUnmatched);
    REQUIRE(cudaStreamEndCapture(b.copies, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaErrorInvalidValue);
    CHECK(b.read(b.copies) != "a");
  }
  SECTION("a captured mark cannot be asked") {
    CHECK(cudaEventQuery(b.event) == cudaErrorCapturedEvent);
    CHECK(cudaStreamEndCapture(b.copies, &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("nor the stream") {
    CHECK(cudaStreamSynchronize(b.copies) == cudaErrorStreamCaptureUnsupported);
    REQUIRE(cudaStreamIsCapturing(b.copies, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    CHECK(cudaStreamEndCapture(b.copies, &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("nor may it wait for what is not captured") {
    cudaEvent_t outside = nullptr;
    REQUIRE(cudaEventCreateWithFlags(&outside, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaEventRecord(outside, b.work) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(b.copies, outside, 0) == cudaErrorStreamCaptureIsolation);
    CHECK(cudaStreamEndCapture(b.copies, &graph) == cudaErrorStreamCaptureInvalidated);
  }
}

TEST_CASE("threads: unsafe calls end a capture, unless their thread is relaxed", "[threads]") {
  bench b;
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(b.copies, cudaStreamCaptureModeGlobal) == cudaSuccess);
  cudaError_t got = cudaErrorUnknown;
  const auto elsewhere = [&](cudaStreamCaptureMode mode) {
    std::thread([&got, &b, mode] {
      cudaStreamCaptureMode exchanged = mode;
      static_cast<void>(cudaThreadExchangeStreamCaptureMode(&exchanged));
      got = cudaEventQuery(b.event);
    }).join();
  };
  elsewhere(cudaStreamCaptureModeRelaxed);
  CHECK(got == cudaSuccess);
  elsewhere(cudaStreamCaptureModeThreadLocal);
  CHECK(got == cudaSuccess);
  SECTION("none") { CHECK(cudaStreamEndCapture(b.copies, &graph) == cudaSuccess); }
  SECTION("of another thread") {
    elsewhere(cudaStreamCaptureModeGlobal);
    CHECK(got == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(b.copies, &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("its own") {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 8) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(b.copies, &graph) == cudaErrorStreamCaptureInvalidated);
  }
}

TEST_CASE("threads: the legacy stream cannot be used while a blocking stream captures", "[threads]") {
  bench b;
  cudaStream_t blocking = nullptr;
  cudaGraph_t graph = nullptr;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  REQUIRE(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault) == cudaSuccess);
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed) == cudaErrorStreamCaptureUnsupported);
  REQUIRE(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(cudaStreamIsCapturing(nullptr, &status) == cudaErrorStreamCaptureImplicit);
  SECTION("asking leaves it valid") { CHECK(cudaStreamEndCapture(blocking, &graph) == cudaSuccess); }
  SECTION("using does not") {
    CHECK(cudaMemsetAsync(b.device, 0, 1, nullptr) == cudaErrorStreamCaptureImplicit);
    CHECK(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
  }
}

TEST_CASE("threads: what is not given back is reported", "[threads]") {
  bench b;
  CHECK(threaded_cuda::leaks() == "2 streams, 1 events, 1 page-locked allocations, 1 device allocations");
  REQUIRE(cudaStreamDestroy(b.work) == cudaSuccess);
  REQUIRE(cudaFree(b.device) == cudaSuccess);
  CHECK(threaded_cuda::leaks() == "1 streams, 1 events, 1 page-locked allocations");
}

// Each of these must be reported by ThreadSanitizer, although nothing happens at once in it: violations() waits for the
// streams without telling. CTest runs them one by one where the sanitizer is on.

TEST_CASE("race: a copy that the host was not told of", "[.race]") {
  bench b;
  b.copy();
  CHECK(threaded_cuda::violations().empty());
  std::memset(b.pinned, 'b', b.size);
}

TEST_CASE("race: a call after the work is no order", "[.race]") {
  bench b;
  b.copy();
  CHECK(threaded_cuda::violations().empty());
  REQUIRE(cudaEventRecord(b.event, b.copies) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(b.work) == cudaSuccess);  // of another stream
  std::memset(b.pinned, 'b', b.size);
}

TEST_CASE("race: a stream that waits for a mark before the copy", "[.race]") {
  bench b;
  REQUIRE(cudaEventRecord(b.event, b.copies) == cudaSuccess);
  b.copy();
  CHECK(threaded_cuda::violations().empty());
  REQUIRE(cudaStreamWaitEvent(b.work, b.event, 0) == cudaSuccess);
  CHECK(b.read(b.work) == "a");
}

TEST_CASE("race: memory freed after work that is done and was not asked about", "[.race]") {
  bench b;
  b.copy();
  CHECK(threaded_cuda::violations().empty());
  REQUIRE(cudaFree(b.device) == cudaSuccess);
}

TEST_CASE("race: a copy to the host that is looked at untold", "[.race]") {
  bench b;
  REQUIRE(cudaMemcpyAsync(b.pinned, b.device, b.size, cudaMemcpyDeviceToHost, b.copies) == cudaSuccess);
  CHECK(threaded_cuda::violations().empty());
  CHECK(static_cast<const char*>(b.pinned)[0] != 'a');
}
