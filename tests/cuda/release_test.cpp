// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Batches are given back on a device in trouble: the model makes the calls fail.

#include <millrace/cuda/stream_device.hpp>
#include <millrace/device/to_device.hpp>

#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/cuda/points.hpp"
#include "tests/cuda/session.hpp"
#include "tests/fake_cuda/fake_cuda.hpp"

using namespace millrace;
using test::next_of;
using test::points;

namespace {

async_generator<host_batch> empty_batches(int n) {
  for (int i = 0; i < n; ++i) {
    host_batch b = batch_pool(batch_layout()).start().seal();
    co_yield give(b);
  }
}

/// Whether releasing it after the stream fails.
bool release_fails(device_batch& b, cudaStream_t stream) {
  try {
    b.release(stream);
  } catch (const cuda::error&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a release that fails gives no slot back before its stream is past it", "[cuda][to_device]") {
  const std::pair<const char*, int> calls[] = {
      {"cudaEventCreateWithFlags", 1}, {"cudaEventRecord", 1}, {"cudaEventRecord", 2}};
  for (const auto& [name, nth] : calls) {
    for (const bool again : {false, true}) {  // whether the destructor fails, too
      INFO(name << " " << nth << (again ? ", and again" : ""));
      const test::cuda_session session;
      testing::virtual_loop loop;
      const cuda::stream copies{cuda::device{0}};
      const cuda::stream training{cuda::device{0}};
      auto stream = points(40) | batch(5) | to_device(copies, {.slots = 2});
      device_batch b = block_on(loop, next_of(stream));
      b.synchronize();  // so that the release is the first that the batch hears of the stream
      fake_cuda::kernel_read(training.get(), b.field("id").data(), b.field("id").bytes());
      fake_cuda::fail_call(name, nth, cudaErrorMemoryAllocation);
      REQUIRE(release_fails(b, training.get()));
      CHECK(b);
      if (again) fake_cuda::fail_call("cudaEventRecord", 1, cudaErrorMemoryAllocation);
      b = device_batch();
      int more = 0;
      try {
        while ((b = block_on(loop, next_of(stream)))) ++more;
        CHECK_FALSE(again);
        CHECK(more == 7);
      } catch (const cuda::error& e) {
        CHECK(again);
        CHECK(e.code() == cudaErrorMemoryAllocation);
      }
    }
  }
}

TEST_CASE("after its release no stream is touched, not even when the release failed", "[cuda][to_device]") {
  const std::pair<cudaError_t, bool> failures[] = {{cudaErrorMemoryAllocation, false}, {cudaErrorIllegalAddress, true}};
  for (const auto& [code, sticky] : failures) {
    for (const bool waited : {true, false}) {
      INFO(cudaGetErrorName(code) << (waited ? ", a stream that waited" : ", a stream that did not wait"));
      fake_cuda::reset();
      {
        testing::virtual_loop loop;
        const cuda::stream copies{cuda::device{0}};
        auto stream = points(40) | batch(5) | to_device(copies, {.slots = 2});
        device_batch b = block_on(loop, next_of(stream));
        b.synchronize();
        {
          const cuda::stream training{cuda::device{0}};
          if (waited) b.wait(training);
          fake_cuda::kernel_read(training.get(), b.field("id").data(), b.field("id").bytes());
          if (!waited) {
            fake_cuda::fail_call("cudaEventCreateWithFlags", 1, code, sticky);
            REQUIRE(release_fails(b, training.get()));
          }
          fake_cuda::fail_call("cudaEventRecord", 1, code, sticky);
          b.release();
        }
        const auto drain = [&] {
          while (block_on(loop, next_of(stream))) {
          }
        };
        CHECK_THROWS_AS(drain(), cuda::error);
      }
      CHECK(fake_cuda::violations() == std::vector<std::string>());
      CHECK(fake_cuda::leaks() == "");
    }
  }
  fake_cuda::reset();
}

TEST_CASE("a kernel of the user's that fails ends the pipeline, at whatever call it shows", "[cuda][to_device]") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    fake_cuda::options with;
    with.seed = seed;
    with.polls_before_ready = static_cast<int>(seed % 5);
    with.early_percent = 20;
    const test::cuda_session session(with);
    testing::virtual_loop loop(seed);
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    auto stream = points(200) | batch(5) | to_device(copies, {.slots = 2 + seed % 2});
    int batches = 0;
    const auto train = [&] {
      while (device_batch b = block_on(loop, next_of(stream))) {
        b.wait(training);
        fake_cuda::kernel_read(training.get(), b.field("id").data(), b.field("id").bytes());
        if (++batches == 3) fake_cuda::kernel_fault(training.get(), cudaErrorIllegalAddress);
        b.release(training);
      }
    };
    CHECK_THROWS_AS(train(), cuda::error);
    CHECK(batches >= 3);
    CHECK(batches < 40);
  }
}

TEST_CASE("a batch of no bytes needs no pinned memory", "[cuda][to_device]") {
  const test::cuda_session session;
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  auto stream = empty_batches(3) | to_device(copies);
  int batches = 0;
  while (device_batch b = block_on(loop, next_of(stream))) {
    CHECK(b.bytes() == 0);
    ++batches;
  }
  CHECK(batches == 3);
  CHECK(fake_cuda::calls("cudaHostAlloc") == 0);
}
