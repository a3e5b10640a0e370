// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What the end of a run asks of the runtime: nothing that waits.

#include <millrace/cuda/stream_device.hpp>
#include <millrace/loader/run.hpp>

#include <string>
#include <utility>
#include <vector>

#include <millrace/device/to_device.hpp>

#include "tests/cuda/points.hpp"
#include "tests/cuda/session.hpp"
#include "tests/fake_cuda/fake_cuda.hpp"

using namespace millrace;
using test::points;

namespace {

std::size_t calls_that_wait() {
  std::size_t n = 0;
  for (const char* name : {"cudaFree", "cudaFreeHost", "cudaEventSynchronize", "cudaStreamSynchronize",
                           "cudaDeviceSynchronize"}) {
    n += fake_cuda::calls(name);
  }
  return n;
}

}  // namespace

TEST_CASE("the end of a run makes no call that waits for the device", "[cuda][run]") {
  for (const bool early : {false, true}) {
    INFO((early ? "left early" : "to the end"));
    const test::cuda_session session;
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    runtime rt;
    for (int epoch = 0; epoch < 5; ++epoch) {
      int batches = 0;
      for (device_batch& b : rt.run(points(20) | batch(5) | to_device(copies, {.slots = 4}))) {
        b.wait(training);
        fake_cuda::kernel_read(training.get(), b.field("id").data(), b.field("id").bytes());
        b.release(training);
        ++batches;
        if (early && batches == 2) break;
      }
      CHECK(batches == (early ? 2 : 4));
      CHECK(calls_that_wait() == 0);
    }
  }
}

TEST_CASE("leaving run() early makes no call that waits for the device", "[cuda][run]") {
  for (const std::size_t slots : {1u, 2u, 3u}) {
    INFO(slots << " slots");
    const test::cuda_session session;
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    for (int epoch = 0; epoch < 5; ++epoch) {
      int batches = 0;
      for (device_batch& b : run(points(20) | batch(5) | to_device(copies, {.slots = slots}), {.prefetch = 1})) {
        b.wait(training);
        fake_cuda::kernel_read(training.get(), b.field("id").data(), b.field("id").bytes());
        b.release(training);
        if (++batches == 2) break;
      }
      CHECK(batches == 2);
      CHECK(fake_cuda::now().pending >= 1);
      CHECK(calls_that_wait() == 0);
    }
    CHECK(fake_cuda::calls("cudaMalloc") == slots);  // each run takes over what the one before it has left
    free_device_slots();
    CHECK(calls_that_wait() >= 1);
    CHECK(fake_cuda::now().device_blocks == 0);
    CHECK(fake_cuda::now().pinned_blocks == 0);
  }
}

TEST_CASE("epochs on one runtime use the same memory, on whatever stream of the GPU", "[cuda][run]") {
  const test::cuda_session session;
  {
    const cuda::stream training{cuda::device{0}};
    runtime rt;
    const auto epoch = [&](std::size_t samples, std::size_t at_once) {
      const cuda::stream copies{cuda::device{0}};
      std::vector<device_batch> held;
      for (device_batch& b : rt.run(points(40) | batch(samples) | to_device(copies, {.slots = 2}), {.prefetch = 1})) {
        b.wait(training);
        fake_cuda::kernel_read(training.get(), b.field("id").data(), b.field("id").bytes());
        held.push_back(std::move(b));
        if (held.size() == at_once) held.clear();
      }
    };
    epoch(5, 2);  // both slots at once
    CHECK(fake_cuda::calls("cudaMalloc") == 2);
    CHECK(fake_cuda::calls("cudaHostAlloc") == 2);
    for (std::size_t i = 0; i < 4; ++i) epoch(5, 1 + i % 2);
    CHECK(fake_cuda::calls("cudaMalloc") == 2);
    CHECK(fake_cuda::calls("cudaHostAlloc") == 2);
    epoch(1, 2);  // of another size, for which the slots are large enough, and back
    epoch(5, 2);
    epoch(1, 2);
    CHECK(fake_cuda::calls("cudaMalloc") == 2);
    CHECK(fake_cuda::calls("cudaHostAlloc") == 4);
    CHECK(calls_that_wait() == 0);
  }
  CHECK(fake_cuda::now().device_blocks == 0);  // the runtime's end waited for the device, and freed
  CHECK(fake_cuda::now().pinned_blocks == 0);
}

TEST_CASE("two runtimes share no memory, and a batch may outlive both", "[cuda][run]") {
  const test::cuda_session session;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  device_batch last;
  {
    runtime one;
    runtime other;
    for (runtime* rt : {&one, &other}) {
      auto r = rt->run(points(20) | batch(5) | to_device(copies, {.slots = 1}), {.prefetch = 1});
      last = std::move(*r.next());
      last.wait(training);
      fake_cuda::kernel_read(training.get(), last.field("id").data(), last.field("id").bytes());
    }
    CHECK(fake_cuda::calls("cudaMalloc") == 2);
  }
  CHECK(fake_cuda::now().device_blocks == 1);
  CHECK(test::read_back(training.get(), last.field("id").data(), 8) == std::string(8, '\0'));
  fake_cuda::kernel_read(training.get(), last.field("id").data(), last.field("id").bytes());
  last = device_batch();
  CHECK(fake_cuda::now().device_blocks == 0);
}
