// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

/// An adversarial, asynchronous model of the CUDA runtime, for tests on machines without a GPU. Linked in place of
/// cudart: the functions the library calls are defined in runtime.cpp. It proves ordering, never speed.
///
/// Asynchronous work happens as late as its order allows: nothing at the call that enqueues it, nothing until someone
/// asks often enough (options::polls_before_ready) or synchronises. Device memory is inaccessible to the host (a
/// stray access faults), freed memory is poisoned and never handed out again. Recorded as violations:
/// - host memory changed between cudaMemcpyAsync and the copy (also: a pinned slab recycled too early);
/// - memory freed that enqueued work may still use, as far as the host could know; use of freed memory or handles;
/// - two accesses, one a write, to the same bytes from streams that no event orders (a kernel reading a batch
///   before waiting for its copy; a copy into a slot that a kernel may still read);
/// - a runtime call inside a host callback; copies outside an allocation; writes to freed pinned memory; anything
///   enqueued on a stream that captures.
/// Streams are separate queues here, the default stream of each device too: its implicit synchronisation with blocking
/// streams is left out, which only makes the model stricter.
namespace millrace::fake_cuda {

struct options {
  std::uint64_t seed = 1;
  int polls_before_ready = 3;  ///< queries of one mark that answer "not ready" before its work is let happen
  int early_percent = 0;       ///< chance that a call lets one random piece of ready work happen early
  int device_count = 1;
  std::size_t largest_allocation = std::size_t(1) << 30;  ///< bytes; beyond it memory is "out"
  cudaError_t no_device_error = cudaErrorNoDevice;        ///< what every call returns when device_count is 0
};

/// Forgets everything and starts anew. Pointers and handles of before are gone.
void reset(options with = {});

/// The `nth` call (1: the next one) of the named function returns `code` and does nothing else. A sticky code is
/// returned by every call from then on, as after a kernel's illegal access: nothing runs any more, and what gives
/// something back still does.
void fail_call(const std::string& name, int nth, cudaError_t code, bool sticky = false);

/// What was done wrong, in words, in order.
std::vector<std::string> violations();

/// How often the named function was called since reset().
std::size_t calls(const std::string& name);

struct census {
  std::size_t streams = 0, events = 0;
  std::size_t pinned_blocks = 0, pinned_bytes = 0;
  std::size_t device_blocks = 0, device_bytes = 0;
  std::size_t pending = 0;          ///< operations enqueued that have not happened
  std::size_t copies = 0;           ///< copies that have happened
  std::size_t pageable_copies = 0;  ///< copies enqueued from ordinary host memory
  std::size_t contexts = 0;         ///< devices with a context
  std::size_t spun = 0;             ///< waits of the host for work, on an event without cudaEventBlockingSync
};
census now();

/// Empty when every stream, event and allocation has been given back; else what is left, in words.
std::string leaks();

/// A kernel on `stream` that reads `n` bytes of device memory: late, and checked like any other access.
void kernel_read(cudaStream_t stream, const void* device_memory, std::size_t n);
/// The same, and when its turn has come `look` gets the bytes.
void kernel(cudaStream_t stream, const void* device_memory, std::size_t n, std::function<void(const void*)> look);
/// A kernel on `stream` that sets `n` bytes of device memory to `value`.
void kernel_write(cudaStream_t stream, void* device_memory, std::size_t n, unsigned char value);
/// A kernel on `stream` that fails: once its turn has come the code is sticky, and whatever call comes next tells.
void kernel_fault(cudaStream_t stream, cudaError_t code);
/// What a kernel uses, said by who knows it: each pointer becomes that of the bytes that the model keeps for it.
class kernel_memory {
 public:
  struct range {
    const void* address;
    std::size_t size;
    bool write;
  };
  using find_bytes = std::function<void*(const range&)>;

  explicit kernel_memory(find_bytes find) : find_(std::move(find)) {}
  template <class T>
  void reads(const T*& at, std::size_t bytes) {
    at = static_cast<const T*>(find_({at, bytes, false}));
  }
  void writes(void*& at, std::size_t bytes) { at = find_({at, bytes, true}); }

 private:
  find_bytes find_;
};

namespace detail {
using bound_kernel = std::function<void()>;
using bind_kernel = std::function<bound_kernel(const void* argument, kernel_memory& memory)>;
void know_kernel(const void* function, bind_kernel bind);
}  // namespace detail

/// Tells cudaLaunchKernel() of a kernel of one argument, and what it uses: late, and checked like any other access.
template <class Argument>
bool know_kernel(void (*kernel)(Argument), void (*uses)(Argument&, kernel_memory&)) {
  detail::know_kernel(reinterpret_cast<const void*>(kernel), [kernel, uses](const void* from, kernel_memory& memory) {
    Argument argument;
    std::memcpy(&argument, from, sizeof argument);
    uses(argument, memory);
    return detail::bound_kernel([kernel, argument] { kernel(argument); });
  });
  return true;
}

/// The contents of device memory as they are now, whatever is pending. For looking at, not for ordering.
std::string peek(const void* device_memory, std::size_t n);

/// Lets one operation happen whose turn it could be, chosen by the seed; false when nothing is pending.
bool step();

}  // namespace millrace::fake_cuda
