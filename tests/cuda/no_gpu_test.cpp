// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/no_gpu.hpp"

#include "tests/support/catch.hpp"

using millrace::test::no_gpu;

TEST_CASE("where there is no GPU its tests may be left out, unless it is required", "[cuda]") {
  for (const cudaError_t code : {cudaErrorNoDevice, cudaErrorInsufficientDriver, cudaErrorStubLibrary, cudaSuccess}) {
    INFO(cudaGetErrorName(code));
    CHECK(no_gpu(code, 0, nullptr));
    CHECK(no_gpu(code, 0, "0"));
    CHECK_FALSE(no_gpu(code, 0, "1"));
  }
  CHECK_FALSE(no_gpu(cudaSuccess, 1, nullptr));
}

TEST_CASE("a GPU that does not work is never taken for none", "[cuda]") {
  for (const cudaError_t code :
       {cudaErrorUnknown, cudaErrorInitializationError, cudaErrorSystemNotReady, cudaErrorSystemDriverMismatch,
        cudaErrorDevicesUnavailable, cudaErrorECCUncorrectable, cudaErrorMemoryAllocation, cudaErrorInvalidDevice}) {
    INFO(cudaGetErrorName(code));
    CHECK_FALSE(no_gpu(code, 0, nullptr));
    CHECK_FALSE(no_gpu(code, 0, "0"));
  }
}
