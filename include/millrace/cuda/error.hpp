// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>

/// Marks the classes whose functions hand streams to the runtime. In a file compiled with
/// CUDA_API_PER_THREAD_DEFAULT_STREAM (nvcc: --default-stream per-thread) the null stream and the runtime's functions
/// are others, so these classes are others too, by their linkers' names: a program may have files of both kinds, and
/// one that hands such an object from one kind to the other does not link.
#ifdef __CUDART_API_PER_THREAD_DEFAULT_STREAM
#define MILLRACE_CUDA_DEFAULT_STREAM [[gnu::abi_tag("default_stream_per_thread")]]
#else
#define MILLRACE_CUDA_DEFAULT_STREAM
#endif

namespace millrace::cuda {

/// A call of the CUDA runtime failed. what() reads "cudaMalloc failed: out of memory (cudaErrorMemoryAllocation, 2)".
///
/// The runtime reports errors of earlier asynchronous work (a kernel's illegal address, say) by whatever call comes
/// next, so the call named here is where the error surfaced, not always where it was made.
class error : public millrace::error {
 public:
  error(cudaError_t code, const char* call) : millrace::error(text(code, call)), code_(code), call_(call) {}
  /// `what_for` ends the message: "…, 2); 64 MiB for …".
  error(cudaError_t code, const char* call, const std::string& what_for)
      : millrace::error(text(code, call) + "; " + what_for), code_(code), call_(call) {}

  cudaError_t code() const noexcept { return code_; }
  /// The runtime function that returned the code.
  const char* call() const noexcept { return call_; }
  /// True when the machine has no usable GPU at all: no driver, a stub driver, or no device. Any other failure means
  /// that a GPU is there and something is wrong.
  bool no_device() const noexcept { return means_no_device(code_); }

  static bool means_no_device(cudaError_t code) noexcept {
    return code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver || code == cudaErrorStubLibrary;
  }

 private:
  static std::string text(cudaError_t code, const char* call) {
    std::string t = std::string(call) + " failed: " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ", " +
                    std::to_string(static_cast<int>(code)) + ")";
    if (code == cudaErrorInsufficientDriver)
      t += "; there is no NVIDIA driver, or one older than the CUDA runtime this program was built with";
    if (code == cudaErrorStubLibrary) t += "; libcuda.so is the toolkit's stub, which is for linking only";
    return t;
  }

  cudaError_t code_;
  const char* call_;  // a string literal
};

namespace detail {

/// Forgets the thread's last error when it is the one just handled, so that a user's own cudaGetLastError() behind a
/// kernel launch does not find ours.
inline void forget(cudaError_t code) noexcept {
  if (cudaPeekAtLastError() == code) static_cast<void>(cudaGetLastError());
}

/// For calls in destructors, whose failure nobody can act on.
inline void ignore(cudaError_t code) noexcept {
  if (code != cudaSuccess) forget(code);
}

/// Throws cuda::error unless `code` is success. `call` is a string literal.
inline void check(cudaError_t code, const char* call) {
  if (MILLRACE_LIKELY(code == cudaSuccess)) return;
  forget(code);
  throw error(code, call);
}

/// The answer of a query, which is no success before the work is done. Throws cuda::error for everything else.
inline bool done(cudaError_t code, const char* call) {
  if (code == cudaErrorNotReady) {
    forget(code);
    return false;
  }
  check(code, call);
  return true;
}

}  // namespace detail
}  // namespace millrace::cuda
