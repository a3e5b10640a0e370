// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/cuda/stream_device.hpp>
#include <millrace/device/to_device.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/cuda/points.hpp"
#include "tests/cuda/session.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::next_of;
using test::points;

namespace {

async_generator<host_batch> pinned_batches(batch_pool pool, int n) {
  for (int i = 0; i < n; ++i) {
    batch_builder builder = pool.start();
    for (std::size_t r = 0; r < builder.capacity(); ++r) {
      const batch_row row = builder.row(r);
      row.set("id", static_cast<std::int64_t>(i * 1000) + static_cast<std::int64_t>(r));
      row.done();
    }
    host_batch b = std::move(builder).seal();
    co_yield give(b);
  }
}

std::string bytes_of(const tensor_view& t) { return std::string(static_cast<const char*>(t.data()), t.bytes()); }

}  // namespace

TEST_CASE("a pipeline fills batches on the GPU, and the user's stream sees them complete", "[cuda][to_device]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  auto stream = points(1000) | batch(64) | to_device(copies, {.slots = 3});
  std::int64_t next_id = 0;
  for (;;) {
    device_batch b = block_on(loop, next_of(stream));
    if (!b) break;
    CHECK(b.device() == "cuda:0");
    b.wait(training.get());
    const tensor_view values = b.field("values");
    CHECK(test::read_back(training.get(), values.data(), values.bytes()) == bytes_of(b.host_field("values")));
    const tensor_view ids = b.field("id");
    CHECK(test::read_back(training.get(), ids.data(), ids.bytes()) == bytes_of(b.host_field("id")));
    for (std::int64_t id : b.host_field("id").values<std::int64_t>()) CHECK(id == next_id++);
    CHECK(b.keys().back() == "p" + std::to_string(next_id - 1));
    CHECK(b.ready());
  }
  CHECK(next_id == 1000);
}

TEST_CASE("decoded straight into pinned batches, one copy each", "[cuda][to_device]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  batch_pool pool(batch_layout(512, {{"id", dtype::i64}}), copies);
  auto stream = pinned_batches(pool, 20) | to_device(copies, {.slots = 2});
  for (int i = 0; i < 20; ++i) {
    device_batch b = block_on(loop, next_of(stream));
    REQUIRE(b);
    b.wait(training.get());
    const tensor_view ids = b.field("id");
    CHECK(test::read_back(training.get(), ids.data(), ids.bytes()) == bytes_of(b.host_field("id")));
    CHECK(b.host_field("id").values<std::int64_t>()[1] == i * 1000 + 1);
    b.release(training.get());
  }
#ifdef MILLRACE_FAKE_CUDA
  CHECK(fake_cuda::now().pageable_copies == 0);
  CHECK(pool.peak() <= 4);
#endif
}

TEST_CASE("batches from a pool of the host's memory are copied to page-locked memory first", "[cuda][to_device]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  batch_pool pool(batch_layout(512, {{"id", dtype::i64}}), host_device());
  auto stream = pinned_batches(pool, 6) | to_device(copies, {.slots = 2});
  for (int i = 0; i < 6; ++i) {
    device_batch b = block_on(loop, next_of(stream));
    REQUIRE(b);
    b.wait(training.get());
    const tensor_view ids = b.field("id");
    CHECK(test::read_back(training.get(), ids.data(), ids.bytes()) == bytes_of(b.host_field("id")));
    b.release(training.get());
  }
#ifdef MILLRACE_FAKE_CUDA
  CHECK(fake_cuda::now().pageable_copies == 0);
#endif
}

TEST_CASE("the default stream may be the consumer's", "[cuda][to_device]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  auto stream = points(8) | batch(4) | to_device(copies);
  const cudaStream_t training = nullptr;
  for (int i = 0; i < 2; ++i) {
    device_batch b = block_on(loop, next_of(stream));
    b.wait(training);
    CHECK(test::read_back(training, b.field("id").data(), b.field("id").bytes()) == bytes_of(b.host_field("id")));
    b.release(training);
  }
}

TEST_CASE("a batch is as good as before when a stream was refused because it captures", "[cuda][to_device]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  auto stream = points(16) | batch(4) | to_device(copies, {.slots = 2});
  int batches = 0;
  for (;;) {
    device_batch b = block_on(loop, next_of(stream));
    if (!b) break;
    ++batches;
    REQUIRE(cudaStreamBeginCapture(training.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK_THROWS_WITH(b.wait(training), Contains("captures a graph"));
    CHECK_THROWS_WITH(b.release(training), Contains("captures a graph"));
    CHECK(b);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(training.get(), &graph) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
    b.wait(training);
    const tensor_view ids = b.field("id");
    CHECK(test::read_back(training.get(), ids.data(), ids.bytes()) == bytes_of(b.host_field("id")));
    b.release(training);
  }
  CHECK(batches == 4);
}

TEST_CASE("a batch let go while its stream captures ends the pipeline with a sentence", "[cuda][to_device]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  auto stream = points(16) | batch(4) | to_device(copies, {.slots = 2});
  {
    device_batch b = block_on(loop, next_of(stream));
    b.wait(training);
    REQUIRE(cudaStreamBeginCapture(training.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
  }
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(training.get(), &graph) == cudaSuccess);  // still valid
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  const auto drain = [&] {
    while (block_on(loop, next_of(stream))) {
    }
  };
  CHECK_THROWS_WITH(drain(), Contains("captures a graph"));
}

#ifdef MILLRACE_FAKE_CUDA

namespace {

// Trains on everything; the steps only enqueue. Returns the ids in order of arrival.
std::vector<std::int64_t> train(testing::virtual_loop& loop, stream<device_batch>& stream,
                                const std::vector<cudaStream_t>& streams, rng& random) {
  std::vector<std::int64_t> ids;
  std::deque<device_batch> held;
  for (;;) {
    device_batch b = block_on(loop, next_of(stream));
    if (!b) break;
    for (cudaStream_t s : streams) {
      if (streams.size() > 1 && random.below(3) == 0) continue;
      b.wait(s);
      fake_cuda::kernel_read(s, b.field("values").data(), b.field("values").bytes());
      fake_cuda::kernel_read(s, b.field("id").data(), b.field("id").bytes());
    }
    for (std::int64_t id : b.host_field("id").values<std::int64_t>()) ids.push_back(id);
    held.push_back(std::move(b));
    if (held.size() > 1) held.pop_front();
  }
  return ids;
}

}  // namespace

TEST_CASE("whatever the order of the device's work, no access races and nothing leaks", "[cuda][to_device]") {
  const std::uint64_t first = testing::virtual_loop::seed_from_environment(1);
  for (std::uint64_t seed = first; seed < first + 150; ++seed) {
    INFO("seed " << seed);
    rng random(seed);
    const test::cuda_session session(test::drawn_options(seed, random));
    testing::virtual_loop loop(seed);
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream one{cuda::device{0}};
    const cuda::stream two{cuda::device{0}};
    auto stream = points(60) | batch(7) | to_device(copies, {.slots = 2 + random.below(3)});
    std::vector<cudaStream_t> streams{one.get()};
    if (random.below(2) == 0) streams.push_back(two.get());
    const std::vector<std::int64_t> ids = train(loop, stream, streams, random);
    REQUIRE(ids.size() == 60);
    for (std::int64_t i = 0; i < 60; ++i) CHECK(ids[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("a consumer that forgets to wait is caught by the model", "[cuda][to_device]") {
  fake_cuda::reset();
  {
    testing::virtual_loop loop;
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    auto stream = points(8) | batch(4) | to_device(copies);
    device_batch b = block_on(loop, next_of(stream));
    fake_cuda::kernel_read(training.get(), b.field("id").data(), 8);
    REQUIRE_FALSE(fake_cuda::violations().empty());
    CHECK_THAT(fake_cuda::violations()[0], Contains("race in device memory"));
    REQUIRE(cudaStreamSynchronize(training.get()) == cudaSuccess);
  }
  fake_cuda::reset();
}

TEST_CASE("dropped in the middle of copies and kernels, nothing is freed too early", "[cuda][to_device]") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    INFO("seed " << seed);
    rng random(seed);
    const test::cuda_session session(test::drawn_options(seed, random));
    const cuda::stream training{cuda::device{0}};
    std::deque<device_batch> kept;
    {
      testing::virtual_loop loop(seed);
      const cuda::stream copies{cuda::device{0}};
      auto stream = points(100) | batch(5) | to_device(copies, {.slots = 3});
      for (std::uint64_t n = random.below(8); n > 0; --n) {
        if (kept.size() == 3) kept.pop_front();
        kept.push_back(block_on(loop, next_of(stream)));
        if (random.below(2) == 0) kept.back().wait(training.get());
        if (kept.back().ready()) kept.back().wait(training.get());
        if (random.below(3) == 0) {
          kept.back().wait(training.get());
          fake_cuda::kernel_read(training.get(), kept.back().field("id").data(), 8);
        }
        if (random.below(4) == 0) kept.clear();
      }
      if (random.below(2) == 0) kept.clear();
    }
    kept.clear();
  }
}

TEST_CASE("any call of the runtime may fail: the error arrives, no memory is freed too early", "[cuda][to_device]") {
  for (const char* name : {"cudaGetDevice", "cudaEventCreateWithFlags", "cudaHostAlloc", "cudaMalloc",
                           "cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventQuery"}) {
    for (int nth = 1; nth <= 12; ++nth) {
      INFO(name << " " << nth);
      const test::cuda_session session;
      {
        testing::virtual_loop loop;
        const cuda::stream copies{cuda::device{0}};
        const cuda::stream training{cuda::device{0}};
        auto stream = points(40) | batch(5) | to_device(copies, {.slots = 2});
        const std::size_t before = fake_cuda::calls(name);
        fake_cuda::fail_call(name, nth, cudaErrorIllegalAddress);
        int batches = 0;
        try {
          for (;;) {
            device_batch b = block_on(loop, next_of(stream));
            if (!b) break;
            b.wait(training.get());
            fake_cuda::kernel_read(training.get(), b.field("id").data(), 8);
            ++batches;
          }
          // The call was never made so often, or the destructor of a batch that no error can leave met it.
          CHECK(batches == 8);
          CHECK(fake_cuda::calls(name) - before < static_cast<std::size_t>(nth));
        } catch (const cuda::error& e) {
          CHECK(std::string(e.call()) == name);
          CHECK(e.code() == cudaErrorIllegalAddress);
          CHECK(batches < 8);
        }
      }
    }
  }
}

TEST_CASE("a device that fails for good ends the pipeline and hangs nothing", "[cuda][to_device]") {
  for (int nth = 1; nth <= 30; ++nth) {
    INFO("record " << nth);
    fake_cuda::reset();
    {
      testing::virtual_loop loop;
      const cuda::stream copies{cuda::device{0}};
      const cuda::stream training{cuda::device{0}};
      auto stream = points(100) | batch(5) | to_device(copies, {.slots = 2});
      fake_cuda::fail_call("cudaEventQuery", nth, cudaErrorIllegalAddress, true);
      const auto all = [&] {
        for (;;) {
          device_batch b = block_on(loop, next_of(stream));
          if (!b) break;
          b.wait(training.get());
        }
      };
      CHECK_THROWS_AS(all(), cuda::error);
    }
    CHECK(fake_cuda::violations().empty());
  }
  fake_cuda::reset();
}

TEST_CASE("a stream of another GPU is refused before its first use", "[cuda][to_device]") {
  // Its end could not be fenced with the events of the copies' GPU: the memory would be freed under its kernels.
  fake_cuda::options with;
  with.device_count = 2;
  const test::cuda_session session(with);
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  const cuda::stream foreign{cuda::device{1}};
  auto stream = points(80) | batch(4) | to_device(copies, {.slots = 2});
  int batches = 0;
  for (;;) {
    device_batch b = block_on(loop, next_of(stream));
    if (!b) break;
    ++batches;
    cudaError_t code = cudaSuccess;
    try {
      b.wait(foreign.get());
      fake_cuda::kernel_read(foreign.get(), b.field("id").data(), b.field("id").bytes());
    } catch (const cuda::error& e) {
      code = e.code();
    }
    CHECK(code == cudaErrorInvalidResourceHandle);
    // The batch is as good as before, and so is the pipeline.
    if (batches % 2 == 0) {
      b.wait(training.get());
      fake_cuda::kernel_read(training.get(), b.field("id").data(), b.field("id").bytes());
    }
  }
  CHECK(batches == 20);
}

TEST_CASE("a new stream for every step leaves no events", "[cuda][to_device]") {
  const test::cuda_session session;
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  auto stream = points(150) | batch(1) | to_device(copies, {.slots = 2});
  std::vector<cuda::stream> streams;  // all kept, so that no two have the same handle
  std::size_t most = 0;
  for (int i = 0; i < 150; ++i) {
    device_batch b = block_on(loop, next_of(stream));
    REQUIRE(b);
    streams.emplace_back(cuda::device{0});
    b.wait(streams.back().get());
    fake_cuda::kernel_read(streams.back().get(), b.field("id").data(), 8);
    b.release();
    most = std::max(most, fake_cuda::now().events);
  }
  CHECK(most < 50);  // the copy's and at most 17 streams' for each slot
}

TEST_CASE("a batch may be read by any number of streams", "[cuda][to_device]") {
  const test::cuda_session session;
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  std::vector<cuda::stream> streams;
  for (int i = 0; i < 24; ++i) streams.emplace_back(cuda::device{0});
  auto stream = points(12) | batch(2) | to_device(copies, {.slots = 2});
  for (int i = 0; i < 6; ++i) {
    device_batch b = block_on(loop, next_of(stream));
    REQUIRE(b);
    for (const cuda::stream& s : streams) {
      b.wait(s.get());
      fake_cuda::kernel_read(s.get(), b.field("id").data(), 16);
    }
  }
}

#endif
