// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The tests' kernels on this model, in which a kernel runs in one go, as late as it can: the host has continued before,
// and what is not ordered is found by its clocks. So nothing is waited for between two looks.

#include <cstdlib>

#include "tests/cuda/kernels.hpp"

#include "tests/fake_cuda/fake_cuda.hpp"

namespace millrace::test {

namespace {

/// `wrong` counts what is wrong in the bytes that it gets.
template <class Wrong>
void look_late(cudaStream_t stream, const void* memory, std::size_t bytes, looks* found, Wrong wrong) {
  fake_cuda::kernel(stream, memory, bytes, [found, wrong](const void* there) {
    found->first = found->second = wrong(there);
    found->begun = found->ended = 1;
  });
}

}  // namespace

void launch_look_twice(cudaStream_t stream, const std::int64_t* numbers, std::size_t n, std::int64_t from, const int*,
                       std::int64_t, looks* found) {
  look_late(stream, numbers, n * sizeof *numbers, found, [n, from](const void* bytes) {
    const auto* const there = static_cast<const std::int64_t*>(bytes);
    unsigned wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong += there[i] != from + static_cast<std::int64_t>(i) ? 1U : 0U;
    return wrong;
  });
}

void launch_look_twice_at_pixels(cudaStream_t stream, const std::uint8_t* pixels, std::size_t n, int level, const int*,
                                 std::int64_t, looks* found) {
  look_late(stream, pixels, n, found, [n, level](const void* bytes) {
    const auto* const there = static_cast<const std::uint8_t*>(bytes);
    unsigned wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong += std::abs(there[i] - level) > next_to ? 1U : 0U;
    return wrong;
  });
}

void launch_hold(cudaStream_t, const int*, std::int64_t) {}  // nothing begins before it has to

}  // namespace millrace::test
