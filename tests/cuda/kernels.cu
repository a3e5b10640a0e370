// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// For nvcc, and for an ordinary compiler together with tests/threaded_cuda: there the kernels are functions.

#include "tests/cuda/kernels.hpp"

#ifndef __CUDACC__
#include <chrono>
#include <thread>

#include "tests/threaded_cuda/threaded_cuda.hpp"
#endif

// Not in an unnamed namespace: nvcc gives kernels names that other files can see.
namespace millrace::test::kernels {

struct gate {
  const int* open;
  std::int64_t limit_ns;
};

struct numbers {
  const std::int64_t* at;
  std::size_t n;
  std::int64_t from;
};

struct pixels {
  const std::uint8_t* at;
  std::size_t n;
  int level;
};

/// `Seen`: numbers or pixels.
template <class Seen>
struct look_twice_arguments {
  Seen seen;
  gate between;
  looks* found;
};

__device__ inline std::int64_t now_ns() {
#ifdef __CUDA_ARCH__
  std::int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#elif defined(__CUDACC__)
  return 0;  // what nvcc compiles for the host is not called
#else
  return std::chrono::steady_clock::now().time_since_epoch().count();
#endif
}

// Flags between the host and the kernels tell when, and order nothing.
__device__ inline bool is_set(const int* flag) {
#ifdef __CUDACC__
  return *static_cast<const volatile int*>(flag) != 0;
#else
  return __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
#endif
}
__device__ inline void set(int* flag) {
#ifdef __CUDACC__
  *static_cast<volatile int*>(flag) = 1;
#else
  __atomic_store_n(flag, 1, __ATOMIC_RELAXED);
#endif
}

__device__ inline void wait_for(gate g) {
  const std::int64_t until = now_ns() + g.limit_ns;
  while (!is_set(g.open) && now_ns() < until) {
#ifndef __CUDACC__
    std::this_thread::yield();
#endif
  }
}

/// How many of them are wrong.
__device__ inline unsigned look(const numbers& a) {
  const volatile std::int64_t* at = a.at;  // volatile: from memory each time
  unsigned wrong = 0;
  for (std::size_t i = 0; i < a.n; ++i) wrong += at[i] != a.from + static_cast<std::int64_t>(i) ? 1U : 0U;
  return wrong;
}
__device__ inline unsigned look(const pixels& a) {
  const volatile std::uint8_t* at = a.at;
  unsigned wrong = 0;
  for (std::size_t i = 0; i < a.n; ++i) {
    const int off = at[i] - a.level;
    wrong += off > next_to || off < -next_to ? 1U : 0U;
  }
  return wrong;
}

template <class Seen>
__device__ inline void look_twice(const look_twice_arguments<Seen>& a) {
  a.found->first = look(a.seen);
  set(&a.found->begun);
  wait_for(a.between);
  a.found->second = look(a.seen);
  set(&a.found->ended);
}

__global__ void look_at_numbers(look_twice_arguments<numbers> a) { look_twice(a); }
__global__ void look_at_pixels(look_twice_arguments<pixels> a) { look_twice(a); }

__global__ void hold(gate g) { wait_for(g); }

#ifndef __CUDACC__
const bool known = threaded_cuda::know_kernel(look_at_numbers) && threaded_cuda::know_kernel(look_at_pixels) &&
                   threaded_cuda::know_kernel(hold);
#endif

}  // namespace millrace::test::kernels

namespace millrace::test {

namespace {

void launch(const void* kernel, void* argument, cudaStream_t stream) {
  // What cannot be launched is found by the test, which misses what the kernel should have written.
  static_cast<void>(cudaLaunchKernel(kernel, dim3(1, 1, 1), dim3(1, 1, 1), &argument, 0, stream));
}

}  // namespace

void launch_look_twice(cudaStream_t stream, const std::int64_t* numbers, std::size_t n, std::int64_t from,
                       const int* gate, std::int64_t limit_ns, looks* found) {
  kernels::look_twice_arguments<kernels::numbers> argument{{numbers, n, from}, {gate, limit_ns}, found};
  launch(reinterpret_cast<const void*>(kernels::look_at_numbers), &argument, stream);
}

void launch_look_twice_at_pixels(cudaStream_t stream, const std::uint8_t* pixels, std::size_t n, int level,
                                 const int* gate, std::int64_t limit_ns, looks* found) {
  kernels::look_twice_arguments<kernels::pixels> argument{{pixels, n, level}, {gate, limit_ns}, found};
  launch(reinterpret_cast<const void*>(kernels::look_at_pixels), &argument, stream);
}

void launch_hold(cudaStream_t stream, const int* gate, std::int64_t limit_ns) {
  kernels::gate argument{gate, limit_ns};
  launch(reinterpret_cast<const void*>(kernels::hold), &argument, stream);
}

}  // namespace millrace::test
