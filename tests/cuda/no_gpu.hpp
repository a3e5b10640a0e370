// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <cstring>

#include <cuda_runtime_api.h>

namespace millrace::test {

/// Whether the tests that need a GPU may be left out, after cudaGetDeviceCount() has returned `code` and `devices`:
/// only where there is none. Not so where one is there and does not work, nor where MILLRACE_REQUIRE_GPU is 1.
inline bool no_gpu(cudaError_t code, int devices, const char* required = std::getenv("MILLRACE_REQUIRE_GPU")) {
  if (required != nullptr && std::strcmp(required, "1") == 0) return false;
  if (code == cudaSuccess) return devices == 0;
  return code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver || code == cudaErrorStubLibrary;
}

}  // namespace millrace::test
