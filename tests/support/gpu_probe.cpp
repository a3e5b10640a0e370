// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// gpu_probe [PROGRAM [ARGUMENT...]]: runs the program where the CUDA runtime finds a device; else says why not and
// leaves with 77, which CTest shows as a skipped test. Not so where a GPU is there and does not work, nor with
// MILLRACE_REQUIRE_GPU=1: that is a failure.

#include <cstdio>

#include <unistd.h>

#include "tests/cuda/no_gpu.hpp"

int main(int argc, char** argv) {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess || devices == 0) {
    const bool may_skip = millrace::test::no_gpu(result, devices);
    std::printf("%s: no GPU: %s\n", may_skip ? "skipped" : "failed",
                result == cudaSuccess ? "no device" : cudaGetErrorString(result));
    return may_skip ? 77 : 1;
  }
  if (argc < 2) return 0;
  ::execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 1;
}
