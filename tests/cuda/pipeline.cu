// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Pipeline, training loop and kernel in one file of nvcc's: what compiles here may stand in a user's .cu. Leaves with 1
// when the kernel's sum is wrong.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <utility>

#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/millrace_cuda.hpp>

namespace mill = millrace;

// Not in an unnamed namespace, nor a lambda where it would be kept in a coroutine: nvcc turns them into types without
// linkage, of which g++ warns.
struct point {
  explicit point(std::int64_t i) : id(i) {}
  std::int64_t id;
};
void collate(const point& p, mill::sample_writer& out) { out.write("id", p.id); }

struct to_point {
  point operator()(std::int64_t i) const { return point(i); }
};

__global__ void add_up(const std::int64_t* ids, std::size_t n, unsigned long long* sum) {
  for (std::size_t i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(sum, static_cast<unsigned long long>(ids[i]));
}

int main() {
  constexpr std::int64_t points = 10000;
  try {
    const mill::cuda::stream copies;
    const mill::cuda::stream training;
    unsigned long long* sum = nullptr;
    unsigned long long got = 0;
    cudaMalloc(&sum, sizeof *sum);
    cudaMemsetAsync(sum, 0, sizeof *sum, training.get());
    auto pipeline = mill::iota(points) | mill::map(to_point()) | mill::batch(100) |
                    mill::to_device(copies, {.slots = 3});
    for (mill::device_batch& b : mill::run(std::move(pipeline), {.prefetch = 2})) {
      b.wait(training);
      add_up<<<1, 64, 0, training.get()>>>(b.field("id").as<std::int64_t>(), b.size(), sum);
      b.release(training);
    }
    cudaMemcpyAsync(&got, sum, sizeof got, cudaMemcpyDeviceToHost, training.get());
    training.synchronize();
    cudaFree(sum);
    std::printf("the sum of the first %lld numbers is %llu\n", static_cast<long long>(points), got);
    return got == points * (points - 1) / 2 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
