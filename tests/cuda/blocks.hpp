// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

/// What nvcc knows by itself, for the models of the runtime, in which a kernel is a function: the threads of a grid run
/// one after the other, so kernels that wait for each other's threads are not for them.

#ifndef __CUDACC__

#define MILLRACE_KERNELS_ARE_FUNCTIONS 1

inline thread_local uint3 blockIdx{}, threadIdx{};
inline thread_local dim3 blockDim, gridDim;

namespace millrace::test {

/// Calls `kernel` for each thread of each block.
template <class Kernel>
void run_grid(dim3 grid, dim3 block, const Kernel& kernel) {
  gridDim = grid;
  blockDim = block;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
        for (threadIdx.z = 0; threadIdx.z < block.z; ++threadIdx.z) {
          for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y) {
            for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel();
          }
        }
      }
    }
  }
}

/// Whether CUDA's limits allow it.
inline bool is_grid(dim3 grid, dim3 block) {
  return grid.x != 0 && grid.x < 1U << 31 && grid.y != 0 && grid.y < 65536 && grid.z != 0 && grid.z < 65536 &&
         block.x != 0 && block.y != 0 && block.z != 0 && block.z <= 64 && block.x <= 1024 && block.y <= 1024 &&
         block.x * block.y * block.z <= 1024;
}

}  // namespace millrace::test

#endif
