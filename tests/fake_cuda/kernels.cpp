// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The tests' kernels on this model, in which a kernel runs in one go, as late as it can: the host has continued before,
// and what is not ordered is found by its clocks. So nothing is waited for between two looks.

#include "tests/cuda/kernels.hpp"

#include "tests/fake_cuda/fake_cuda.hpp"

namespace millrace::test {

void launch_look_twice(cudaStream_t stream, const std::int64_t* numbers, std::size_t n, std::int64_t from, const int*,
                       std::int64_t, looks* found) {
  fake_cuda::kernel(stream, numbers, n * sizeof *numbers, [n, from, found](const void* bytes) {
    const auto* const there = static_cast<const std::int64_t*>(bytes);
    for (std::size_t i = 0; i < n; ++i) found->first += there[i] != from + static_cast<std::int64_t>(i) ? 1U : 0U;
    found->second = found->first;
    found->begun = found->ended = 1;
  });
}

void launch_hold(cudaStream_t, const int*, std::int64_t) {}  // nothing begins before it has to

}  // namespace millrace::test
