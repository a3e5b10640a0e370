// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What the end of a run asks of the runtime: nothing that waits.

#include <millrace/cuda/stream_device.hpp>
#include <millrace/loader/run.hpp>

#include <string>

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
    for (int epoch = 0; epoch < 5; ++epoch) {
      int batches = 0;
      for (device_batch& b : run(points(20) | batch(5) | to_device(copies, {.slots = 4}))) {
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

TEST_CASE("pipelines one after the other use the same memory", "[cuda][run]") {
  fake_cuda::options with;
  with.polls_before_ready = 0;
  const test::cuda_session session(with);
  std::size_t device_bytes = 0;
  {
    const cuda::stream copies{cuda::device{0}};
    const auto epoch = [&](std::size_t samples) {
      for (device_batch& b : run(points(40) | batch(samples) | to_device(copies, {.slots = 2}))) b.synchronize();
      free_ended_slots();
    };
    epoch(5);
    const std::size_t pinned = fake_cuda::calls("cudaHostAlloc");
    CHECK(fake_cuda::calls("cudaMalloc") == 2);
    for (int i = 0; i < 4; ++i) epoch(5);
    CHECK(fake_cuda::calls("cudaMalloc") == 2);
    CHECK(fake_cuda::calls("cudaHostAlloc") <= pinned + 1);
    CHECK(fake_cuda::calls("cudaFree") == 0);
    device_bytes = fake_cuda::now().device_bytes;
    epoch(1);  // what does not fit is given back before more is taken
    CHECK(fake_cuda::calls("cudaFree") == 2);
    CHECK(fake_cuda::now().device_bytes < device_bytes);
  }
  CHECK(fake_cuda::now().device_blocks == 0);
  CHECK(fake_cuda::now().pinned_blocks == 0);
}
