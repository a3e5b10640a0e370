// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

/// A model of the CUDA runtime in which everything really happens at once, for tests on machines without a GPU. Linked
/// in place of cudart. Written from the runtime's documentation alone: it shares no line with tests/fake_cuda.
///
/// Every stream is a thread, which takes its work in order, with pauses drawn from a seed. Device memory is memory of
/// the process, and a kernel is a function that the stream's thread calls, once for each thread of the grid, one after
/// the other. Where CUDA promises little the model does little:
/// - a copy from page-locked memory reads it when the stream gets there, in pieces; one from ordinary memory is staged
///   by the call. A copy to ordinary memory is asynchronous, too.
/// - cudaFree and cudaFreeHost wait for nothing: the bytes are overwritten at once, and not used again. cudaFreeAsync
///   does it in its stream's order.
/// - ThreadSanitizer sees the orders that CUDA gives, and no others: from the call that enqueues to the work, along a
///   stream, from a mark to a waiter, or to a query that finds it reached; not from a call to the next one.
namespace millrace::threaded_cuda {

/// How many devices the machine has.
inline constexpr int device_count = 2;

/// Waits for all work, forgets everything and starts anew. Pointers and handles of before are gone.
void reset(std::uint64_t seed = 1);

/// Waits for all work without telling ThreadSanitizer, and says what was done wrong: use of freed memory or handles,
/// copies that leave an allocation, calls in host functions, freed memory written to.
std::vector<std::string> violations();

/// Empty when every stream, event and allocation has been given back; else what is left, in words.
std::string leaks();

/// How often the named function was called since reset().
std::size_t calls(const std::string& name);

namespace detail {
/// Calls a kernel with a copy of its argument.
using bound_kernel = std::function<void()>;
void know_kernel(const void* function, std::function<bound_kernel(const void* argument)> bind);
}  // namespace detail

/// Tells cudaLaunchKernel() of a kernel, as nvcc does of every function that is __global__. Of one argument.
template <class Argument>
bool know_kernel(void (*kernel)(Argument)) {
  detail::know_kernel(reinterpret_cast<const void*>(kernel), [kernel](const void* from) {
    Argument argument;
    std::memcpy(&argument, from, sizeof argument);
    return detail::bound_kernel([kernel, argument] { kernel(argument); });
  });
  return true;
}

}  // namespace millrace::threaded_cuda
