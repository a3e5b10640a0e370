// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

/// The kernels of the tests, of one thread each: kernels.cu for a GPU and for tests/threaded_cuda, which calls the same
/// functions, tests/fake_cuda/kernels.cpp for the model that has no memory that a kernel could read.
namespace millrace::test {

/// What a kernel has found; in page-locked memory.
struct looks {
  unsigned first = 0;   ///< numbers that were wrong when it began
  unsigned second = 0;  ///< the same when it ended
  int begun = 0;        ///< has looked once
  int ended = 0;
};

/// By how much a pixel may differ from the level that was encoded.
inline constexpr int next_to = 4;

/// Work on `stream` that looks whether the `n` numbers at `numbers` are `from`, `from` + 1 and so on, waits until *gate
/// is not 0, `limit_ns` long at most, and looks again.
void launch_look_twice(cudaStream_t stream, const std::int64_t* numbers, std::size_t n, std::int64_t from,
                       const int* gate, std::int64_t limit_ns, looks* found);

/// Does the same for `n` pixels, each of which is `level`, or next to it as another decoder has it.
void launch_look_twice_at_pixels(cudaStream_t stream, const std::uint8_t* pixels, std::size_t n, int level,
                                 const int* gate, std::int64_t limit_ns, looks* found);

/// Work on `stream` that does nothing until *gate is not 0, or `limit_ns` are over.
void launch_hold(cudaStream_t stream, const int* gate, std::int64_t limit_ns);

}  // namespace millrace::test
