// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// gpu_probe PROGRAM [ARGUMENT...]: runs the program where the CUDA runtime finds a device; else says why not and
// leaves with 77, which CTest shows as a skipped test.

#include <cstdio>

#include <unistd.h>

#include <cuda_runtime_api.h>

int main(int argc, char** argv) {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU: %s\n", result == cudaSuccess ? "no device" : cudaGetErrorString(result));
    return 77;
  }
  if (argc < 2) return 0;
  ::execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 1;
}
