// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// As a file of a program is compiled by `nvcc --default-stream per-thread`; the other files of this one are not.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1

#include <millrace/cuda/stream_device.hpp>

#include "tests/cuda/session.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

TEST_CASE("in a file compiled for default streams per thread the null stream is refused", "[cuda][per_thread]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream_device gpu{cuda::stream{}};
  cuda::event e = gpu.make_event();
  cudaStream_t const null = nullptr;
  CHECK_THROWS_WITH(gpu.record(e, null), Contains("default stream per thread"));
  CHECK_THROWS_AS(gpu.wait(null, e), configuration_error);
  CHECK_THROWS_AS(gpu.synchronize(null), configuration_error);
  gpu.record(e, cudaStreamLegacy);
  gpu.wait(cudaStreamLegacy, e);
}
