// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/gpu.md that needs the CUDA Toolkit, and that of docs/guide/watching.md.

#include <cstddef>
#include <cstdint>
#include <utility>

#include <millrace/device/fill_batches.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/millrace_cuda.hpp>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <millrace/cuda/nvtx.hpp>
#endif

#include "tests/fake_cuda/fake_cuda.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

std::size_t steps = 0;
void enqueue_step(cudaStream_t, const std::int64_t*, std::size_t) { ++steps; }

// begin train
void train(mill::stream<std::int64_t> numbers) {
  const mill::cuda::stream copies;  // on the current device
  const mill::cuda::stream work;    // cuda::stream::borrow() for one that the program has
  const mill::batch_pool pool(mill::batch_layout(64, {{"n", mill::dtype::i64}}), copies);
  const auto fill = [](std::int64_t n, const mill::batch_row& row) { row.set("n", n); };
  auto batches = std::move(numbers)                //
                 | mill::fill_batches(pool, fill)  // into page-locked memory
                 | mill::to_device(copies, {.slots = 3});
  for (mill::device_batch& b : mill::run(std::move(batches))) {
    b.wait(work.get());  // what is enqueued on work from now on starts after the copy
    enqueue_step(work.get(), b.field("n").as<std::int64_t>(), b.size());
    b.release(work.get());  // the slot is free when the step is done; the host does not wait for that
  }
}
// end train

#if __has_include(<nvtx3/nvToolsExt.h>)
// begin nvtx
std::int64_t train_profiled(mill::stream<std::int64_t> numbers) {
  mill::runtime rt({.ranges = &mill::cuda::nvtx_ranges});
  std::int64_t sum = 0;
  for (std::int64_t n : rt.run(std::move(numbers))) sum += n;
  return sum;
}
// end nvtx
#endif

}  // namespace

TEST_CASE("the guide's loop on CUDA waits and releases", "[guide]") {
  mill::fake_cuda::reset();
  train(mill::iota(std::int64_t(1000)));
  CHECK(steps == 16);
  mill::free_device_slots();  // of run(), which leaves them to the process
  CHECK(mill::fake_cuda::violations().empty());
  mill::fake_cuda::reset();
}

#if __has_include(<nvtx3/nvToolsExt.h>)
TEST_CASE("the guide's loop with ranges in NVTX runs without a profiler", "[guide]") {
  CHECK(train_profiled(mill::iota(std::int64_t(10))) == 45);
}
#endif
