// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/cuda/stream_device.hpp>

#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <millrace/memory/slab_pool.hpp>

#include "tests/cuda/session.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

TEST_CASE("a copy through the device concept arrives after its event", "[cuda]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream_device gpu{cuda::stream{cuda::device{0}}};
  constexpr std::size_t n = 100000;
  auto* staging = static_cast<char*>(gpu.allocate_pinned(n));
  void* there = gpu.allocate_device(n);
  for (std::size_t i = 0; i < n; ++i) staging[i] = static_cast<char>(i * 7);
  cuda::event done = gpu.make_event();
  CHECK(gpu.query(done));
  gpu.copy_to_device(there, staging, n);
  gpu.record(done);
  const cuda::stream user{cuda::device{0}};
  gpu.wait(user, done);
  CHECK(test::read_back(user.get(), there, n) == std::string(staging, n));
  gpu.synchronize(done);
  CHECK(gpu.query(done));
  CHECK(user.idle());
  CHECK(gpu.name() == "cuda:0");
  CHECK(gpu.pci_address().size() >= std::string("0000:3B:00.0").size());
  CHECK(gpu.pci_address() == cuda::device(0).pci_address());
  gpu.free_device(there, n);
  gpu.free_pinned(staging, n);
}

TEST_CASE("polling an event leaves no error for the user to find", "[cuda]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream s;
  const cuda::stream_device gpu{s};
  void* staging = gpu.allocate_pinned(1 << 22);
  std::memset(staging, 1, 1 << 22);
  void* there = gpu.allocate_device(1 << 22);
  cuda::event done = gpu.make_event();
  gpu.copy_to_device(there, staging, 1 << 22);
  gpu.record(done);
  while (!gpu.query(done)) CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  gpu.free_device(there, 1 << 22);
  gpu.free_pinned(staging, 1 << 22);
}

TEST_CASE("streams are shared handles, events have one owner", "[cuda]") {
  MILLRACE_CUDA_SESSION();
  cuda::stream a;
  const cuda::stream b = a;
  CHECK(a.get() == b.get());
  const cuda::stream_device kept{std::move(a)};
  CHECK(kept.copies().get() == b.get());
  cuda::event e{cuda::device{0}};
  cuda::event f{std::move(e)};
  CHECK(f.get() != nullptr);
  CHECK(e.get() == nullptr);  // NOLINT: what is left is looked at
  f.record(b.get());
  b.wait(f);
  b.synchronize();
  CHECK(f.ready());

  cudaStream_t own = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) == cudaSuccess);
  {
    const cuda::stream view = cuda::stream::borrow(own, cuda::device{0});
    CHECK(view.get() == own);
    CHECK(view.idle());
  }
  CHECK(cudaStreamQuery(own) == cudaSuccess);
  CHECK(cudaStreamDestroy(own) == cudaSuccess);
}

TEST_CASE("a slab pool of pinned memory", "[cuda]") {
  MILLRACE_CUDA_SESSION();
  slab_pool pool(4096, std::make_shared<cuda::pinned_source>());
  writable_bytes slab = pool.acquire();
  cudaPointerAttributes what{};
  REQUIRE(cudaPointerGetAttributes(&what, slab.data()) == cudaSuccess);
  CHECK(what.type == cudaMemoryTypeHost);
  std::memset(slab.data(), 'x', 4096);
  CHECK(slab.share(0, 4096).size() == 4096);
}

TEST_CASE("a stream of another kind is refused", "[cuda]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream_device gpu{cuda::stream{}};
  cuda::event e = gpu.make_event();
  int other = 0;
  CHECK_THROWS_AS(gpu.wait(&other, e), configuration_error);
  CHECK_THROWS_AS(gpu.record(e, &other), configuration_error);
}

TEST_CASE("the null stream is the device's default stream, whatever other files take it for", "[cuda][per_thread]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream_device gpu{cuda::stream{}};
  cuda::event e = gpu.make_event();
  cudaStream_t const null = nullptr;
  CHECK_NOTHROW(gpu.record(e, null));
  CHECK_NOTHROW(gpu.wait(null, e));
  CHECK_NOTHROW(gpu.synchronize(null));
}

TEST_CASE("the default stream per thread is refused, which is another one on the next thread", "[cuda]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream_device gpu{cuda::stream{}};
  cuda::event e = gpu.make_event();
  CHECK_THROWS_AS(gpu.wait(cudaStreamPerThread, e), configuration_error);
  CHECK_THROWS_WITH(gpu.record(e, cudaStreamPerThread), Contains("default stream per thread"));
  CHECK_THROWS_AS(gpu.synchronize(cudaStreamPerThread), configuration_error);
  gpu.record(e, cudaStreamLegacy);
  gpu.wait(cudaStreamLegacy, e);

  // What it has been given before it is refused is waited for: a slot that it uses is used again after the refusal.
  void* const staging = gpu.allocate_pinned(4096);
  std::memset(staging, 1, 4096);
  void* const there = gpu.allocate_device(4096);
  cuda::event done = gpu.make_event();
  REQUIRE(cudaMemcpyAsync(there, staging, 4096, cudaMemcpyHostToDevice, cudaStreamPerThread) == cudaSuccess);
  REQUIRE(cudaEventRecord(done.get(), cudaStreamPerThread) == cudaSuccess);
  CHECK_THROWS_AS(gpu.record(e, cudaStreamPerThread), configuration_error);
  CHECK(cudaEventQuery(done.get()) == cudaSuccess);
  gpu.free_device(there, 4096);
  gpu.free_pinned(staging, 4096);
}

TEST_CASE("an error names the call, the code and the reason", "[cuda]") {
  MILLRACE_CUDA_SESSION();
  try {
    cuda::stream s{cuda::device{1000}};
    FAIL("there is no such device");
  } catch (const cuda::error& e) {
    CHECK(e.code() == cudaErrorInvalidDevice);
    CHECK(std::string(e.call()) == "cudaSetDevice");
    CHECK_THAT(e.what(), Contains("cudaSetDevice failed: invalid device ordinal (cudaErrorInvalidDevice, 101)"));
    CHECK_FALSE(e.no_device());
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK_THROWS_AS(cuda::stream_device{cuda::stream{}}.allocate_device(std::size_t(1) << 60), cuda::error);
}

namespace {

/// A graph of nothing; in the mode that forbids unsafe calls to all threads, or in another.
class capture {
 public:
  explicit capture(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal, cuda::stream on = cuda::stream())
      : on_(std::move(on)) {
    REQUIRE(cudaStreamBeginCapture(on_.get(), mode) == cudaSuccess);
  }
  bool end() {
    cudaGraph_t graph = nullptr;
    const bool valid = cudaStreamEndCapture(on_.get(), &graph) == cudaSuccess;
    if (graph != nullptr) cudaGraphDestroy(graph);
    return valid;
  }

 private:
  cuda::stream on_;
};

}  // namespace

TEST_CASE("the loop's calls neither end a graph capture of another thread nor are refused for it", "[cuda]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream_device gpu{cuda::stream{}};
  capture graph;
  std::string failed;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  std::thread([&] {
    try {
      cuda::event e = gpu.make_event();
      void* staging = gpu.allocate_pinned(4096);
      std::memset(staging, 1, 4096);
      void* there = gpu.allocate_device(4096);
      gpu.copy_to_device(there, staging, 4096);
      gpu.record(e);
      while (!gpu.query(e)) {
      }
      gpu.synchronize(e);
      gpu.free_device(there, 4096);
      gpu.free_pinned(staging, 4096);
    } catch (const cuda::error& error) {
      failed = error.what();
    }
    cudaThreadExchangeStreamCaptureMode(&mode);
  }).join();
  CHECK(graph.end());
  CHECK(failed == "");
  CHECK(mode == cudaStreamCaptureModeGlobal);  // the thread's own was put back
}

TEST_CASE("a stream that captures a graph is refused before anything is recorded", "[cuda]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream_device gpu{cuda::stream{}};
  const cuda::stream training;
  cuda::event e = gpu.make_event();
  gpu.record(e);
  gpu.synchronize(e);
  capture graph(cudaStreamCaptureModeRelaxed, training);
  CHECK_THROWS_WITH(gpu.wait(training, e), Contains("the stream captures a graph"));
  CHECK_THROWS_WITH(gpu.record(e, training), Contains("the stream captures a graph"));
  CHECK_THROWS_AS(gpu.synchronize(training), configuration_error);
  CHECK(gpu.query(e));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(graph.end());
  gpu.wait(training, e);
  gpu.record(e, training);
  gpu.synchronize(training);
}

#ifndef MILLRACE_FAKE_CUDA
TEST_CASE("so is the default stream, while a stream captures that would wait for it", "[cuda]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream_device gpu{cuda::stream{}};
  cuda::event e = gpu.make_event();
  cudaStream_t blocking = nullptr;
  cudaStream_t const null = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault) == cudaSuccess);
  {
    capture graph(cudaStreamCaptureModeRelaxed, cuda::stream::borrow(blocking, cuda::device{0}));
    CHECK_THROWS_WITH(gpu.record(e, null), Contains("the stream captures a graph"));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(graph.end());
  }
  gpu.record(e, null);
  gpu.synchronize(e);
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}
#endif

#ifdef MILLRACE_FAKE_CUDA

TEST_CASE("on a machine without a GPU the error says so", "[cuda]") {
  fake_cuda::options with;
  with.device_count = 0;
  for (cudaError_t code : {cudaErrorNoDevice, cudaErrorInsufficientDriver, cudaErrorStubLibrary}) {
    with.no_device_error = code;
    const test::cuda_session session(with);
    try {
      cuda::stream s;
      FAIL("no device");
    } catch (const cuda::error& e) {
      CHECK(e.no_device());
      CHECK(e.code() == code);
    }
    CHECK_THROWS_AS(cuda::device::count(), cuda::error);
  }
}

TEST_CASE("no device gets a context but the one that is used", "[cuda]") {
  fake_cuda::options with;
  with.device_count = 8;
  const test::cuda_session session(with);
  CHECK(cuda::device::count() == 8);
  std::thread([] {  // a thread that never chose a device
    const cuda::stream_device gpu{cuda::stream{cuda::device{5}}};
    void* staging = gpu.allocate_pinned(64);
    std::memset(staging, 0, 64);
    void* there = gpu.allocate_device(64);
    cuda::event e = gpu.make_event();
    gpu.copy_to_device(there, staging, 64);
    gpu.record(e);
    while (!gpu.query(e)) {
    }
    gpu.synchronize(e);
    gpu.free_device(there, 64);
    gpu.free_pinned(staging, 64);
  })
      .join();
  CHECK(fake_cuda::now().contexts == 1);
}

TEST_CASE("not even by one call on a thread that never made another", "[cuda]") {
  fake_cuda::options with;
  with.device_count = 8;
  const test::cuda_session session(with);
  const auto fresh_thread = [](auto action) { std::thread(action).join(); };
  std::optional<cuda::stream_device> gpu;
  std::optional<cuda::event> e;
  void* staging = nullptr;
  void* there = nullptr;
  fresh_thread([&] { gpu.emplace(cuda::stream{cuda::device{5}}); });
  fresh_thread([&] { e.emplace(gpu->make_event()); });
  fresh_thread([&] { staging = gpu->allocate_pinned(8); });
  fresh_thread([&] { there = gpu->allocate_device(8); });
  fresh_thread([&] { gpu->copy_to_device(there, staging, 8); });
  fresh_thread([&] { gpu->record(*e); });
  fresh_thread([&] { gpu->record(*e, gpu->copies()); });
  fresh_thread([&] { gpu->wait(gpu->copies(), *e); });
  fresh_thread([&] { gpu->query(*e); });
  fresh_thread([&] { gpu->synchronize(*e); });
  fresh_thread([&] { gpu->copies().wait(*e); });
  fresh_thread([&] { gpu->copies().idle(); });
  fresh_thread([&] { gpu->copies().synchronize(); });
  fresh_thread([&] { gpu->free_pinned(staging, 8); });
  fresh_thread([&] { gpu->free_device(there, 8); });
  fresh_thread([&] { e.reset(); });
  fresh_thread([&] { gpu.reset(); });
  CHECK(fake_cuda::now().contexts == 1);
}

TEST_CASE("the driver's function is looked up once, however many calls are made", "[cuda]") {
  fake_cuda::options with;
  with.device_count = 2;
  const test::cuda_session session(with);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  const cuda::stream elsewhere{cuda::device{1}};
  for (int i = 0; i < 20; ++i) elsewhere.synchronize();
  CHECK(fake_cuda::calls("cudaGetDriverEntryPoint") <= 1);  // not at all where an earlier test has done it
}

TEST_CASE("a host that waits for an event sleeps", "[cuda]") {
  const test::cuda_session session;
  const cuda::stream_device gpu{cuda::stream{}};
  cuda::event e = gpu.make_event();
  gpu.record(e);
  gpu.synchronize(e);
  gpu.record(e, gpu.copies());
  e.synchronize();
  CHECK(fake_cuda::now().spun == 0);
}

TEST_CASE("streams and pinned memory are made for the device that the thread has chosen", "[cuda]") {
  fake_cuda::options with;
  with.device_count = 8;
  const test::cuda_session session(with);
  REQUIRE(cudaSetDevice(5) == cudaSuccess);
  CHECK(cuda::device::current() == cuda::device(5));
  const cuda::stream copies;
  CHECK(copies.on().ordinal() == 5);
  slab_pool pool(4096, std::make_shared<cuda::pinned_source>());
  const writable_bytes slab = pool.acquire();
  cudaPointerAttributes what{};
  REQUIRE(cudaPointerGetAttributes(&what, slab.data()) == cudaSuccess);
  CHECK(what.device == 5);
  CHECK(fake_cuda::now().contexts == 1);
}

TEST_CASE("a thread's own device is put back after every call", "[cuda]") {
  fake_cuda::options with;
  with.device_count = 2;
  const test::cuda_session session(with);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  const cuda::stream_device gpu{cuda::stream{cuda::device{1}}};
  const auto current = [] {
    int d = -1;
    REQUIRE(cudaGetDevice(&d) == cudaSuccess);
    return d;
  };
  CHECK(current() == 0);
  cuda::event e = gpu.make_event();
  CHECK(current() == 0);
  gpu.record(e);                                     // would fail with an event of device 0
  REQUIRE(cudaStreamQuery(nullptr) == cudaSuccess);  // the default stream of device 0
  gpu.record(e, cudaStream_t(nullptr));              // that of device 1
  gpu.wait(gpu.copies(), e);
  gpu.synchronize(e);
  CHECK(current() == 0);
  CHECK(fake_cuda::now().contexts == 2);
}

TEST_CASE("every call's failure becomes an error with its name, and nothing leaks", "[cuda]") {
  for (const char* name : {"cudaGetDevice", "cudaThreadExchangeStreamCaptureMode", "cudaStreamCreateWithFlags",
                           "cudaEventCreateWithFlags", "cudaHostAlloc", "cudaMalloc", "cudaMemcpyAsync",
                           "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventQuery", "cudaEventSynchronize"}) {
    INFO(name);
    const test::cuda_session session;
    fake_cuda::fail_call(name, 1, cudaErrorIllegalAddress);
    void* staging = nullptr;
    void* there = nullptr;
    std::string failed;
    {
      std::optional<cuda::stream_device> gpu;
      try {
        gpu.emplace(cuda::stream{});
        cuda::event e = gpu->make_event();
        staging = gpu->allocate_pinned(8);
        there = gpu->allocate_device(8);
        gpu->copy_to_device(there, staging, 8);
        gpu->record(e);
        gpu->wait(gpu->copies(), e);
        gpu->query(e);
        gpu->synchronize(e);
      } catch (const cuda::error& e) {
        failed = e.call();
        CHECK(e.code() == cudaErrorIllegalAddress);
      }
      CHECK(failed == name);
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
      if (gpu) {
        gpu->free_device(there, 8);
        gpu->free_pinned(staging, 8);
      }
    }
  }
}

TEST_CASE("every process of a machine has a GPU of its own", "[cuda]") {
  for (const int gpus : {1, 4}) {
    fake_cuda::options with;
    with.device_count = gpus;
    const test::cuda_session session(with);
    std::thread([gpus] {  // a new thread has device 0
      for (std::uint32_t local = 0; local < 4; ++local) {
        cuda::device::for_local_rank(local).make_current();
        CHECK(cuda::device::current().ordinal() == (gpus == 1 ? 0 : static_cast<int>(local)));
      }
      if (gpus == 1) {
        CHECK(cuda::device::for_local_rank(7) == cuda::device(0));  // shown alone by the launcher
      } else {
        CHECK_THROWS_WITH(cuda::device::for_local_rank(4), Contains("number 4") && Contains("4 GPUs"));
        CHECK_THROWS_AS(cuda::device::for_local_rank(UINT32_MAX), configuration_error);
      }
    }).join();
  }
}

#endif
