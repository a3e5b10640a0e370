// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>

/// Marks the classes whose functions pass streams to the runtime. In a file compiled with
/// CUDA_API_PER_THREAD_DEFAULT_STREAM (nvcc: --default-stream per-thread) the null stream and the runtime's functions
/// are others, so these classes are others too, by their linkers' names: a program may have files of both kinds, and
/// one that hands such an object from one kind to the other does not link.
#ifdef __CUDART_API_PER_THREAD_DEFAULT_STREAM
#define MILLRACE_CUDA_DEFAULT_STREAM [[gnu::abi_tag("default_stream_per_thread")]]
#else
#define MILLRACE_CUDA_DEFAULT_STREAM
#endif

namespace millrace::inline MILLRACE_ABI::cuda {

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

/// Forgets the thread's last error when it is the one just handled, so that a user's own cudaGetLastError() after a
/// kernel launch does not find ours.
inline void forget(cudaError_t code) noexcept {
  if (cudaPeekAtLastError() == code) static_cast<void>(cudaGetLastError());
}

/// For calls in destructors, whose failure cannot be handled.
inline void ignore(cudaError_t code) noexcept {
  if (code != cudaSuccess) forget(code);
}

/// Throws cuda::error unless `code` is success. `call` is a string literal.
inline void check(cudaError_t code, const char* call) {
  if (MILLRACE_LIKELY(code == cudaSuccess)) return;
  forget(code);
  throw error(code, call);
}

/// The result of a query: false before the work is done. Throws cuda::error for everything else.
inline bool done(cudaError_t code, const char* call) {
  if (code == cudaErrorNotReady) {
    forget(code);
    return false;
  }
  check(code, call);
  return true;
}

}  // namespace detail

/// One GPU, by its ordinal among those that CUDA_VISIBLE_DEVICES shows to this process. A plain number: the constructor
/// does not call or check anything; the first stream, event or allocation on it does.
class device {
 public:
  constexpr explicit device(int ordinal = 0) noexcept : ordinal_(ordinal) {}

  constexpr int ordinal() const noexcept { return ordinal_; }
  std::string name() const { return "cuda:" + std::to_string(ordinal_); }
  /// Its address on the PCI bus, "0000:3B:00.0". Makes no context. Throws cuda::error.
  std::string pci_address() const {
    char text[32] = "";
    detail::check(cudaDeviceGetPCIBusId(text, sizeof text, ordinal_), "cudaDeviceGetPCIBusId");
    return text;
  }

  /// How many GPUs there are. Throws cuda::error; error::no_device() distinguishes a machine without a GPU from a
  /// broken one.
  static int count() {
    int n = 0;
    detail::check(cudaGetDeviceCount(&n), "cudaGetDeviceCount");
    return n;
  }

  /// The calling thread's, as cudaSetDevice chose it: the default for streams and pinned memory, so that a rank that
  /// chooses its GPU at the start needs to say no more. A thread that chose none has device 0, until millrace first
  /// works for another one there. Throws cuda::error.
  static device current() {
    int ordinal = 0;
    detail::check(cudaGetDevice(&ordinal), "cudaGetDevice");
    return device(ordinal);
  }

  /// Makes it the calling thread's, as cudaSetDevice does. Throws cuda::error.
  void make_current() const { detail::check(cudaSetDevice(ordinal_), "cudaSetDevice"); }

  /// The GPU of a process that trains beside others: one each, by its number among the processes of its machine,
  /// `rank::local_index`. A process that sees one GPU has that one: launchers that give each process its own show it no
  /// other. Throws configuration_error if there are several, and too few for the number; cuda::error.
  ///
  ///     mill::cuda::device::for_local_rank(mill::rank_from_environment().local_index).make_current();
  static device for_local_rank(std::uint32_t local_index) {
    const int n = count();
    if (n == 1) return device(0);
    if (local_index >= static_cast<std::uint32_t>(n)) {
      throw configuration_error("this process is number " + std::to_string(local_index) +
                                " of those on its machine, counted from 0, and it sees " + std::to_string(n) +
                                " GPUs: start as many processes as there are GPUs");
    }
    return device(static_cast<int>(local_index));
  }

  friend constexpr bool operator==(device, device) noexcept = default;

 private:
  int ordinal_;
};

/// Makes a device the calling thread's current one until the end of the scope, then puts the former one back.
///
/// A thread that never chose a device has device 0 as its current one, without a context there. Such a device is
/// not put back: cudaSetDevice would create the context (hundreds of megabytes), and on a machine with eight ranks all
/// eight would have one on device 0. So such a thread keeps the device it first worked for.
///
/// Within the scope the thread's capture mode is relaxed: queries and allocations of the loop must not end a graph that
/// another thread of the program captures in the global mode (the default, in which such calls are forbidden to all
/// threads), nor be refused for it. The calls made here touch no stream that captures.
class device_guard {
 public:
  /// Throws cuda::error when there is no such device.
  explicit device_guard(device on) {
    int current = 0;
    detail::check(cudaGetDevice(&current), "cudaGetDevice");
    if (current != on.ordinal()) {
      if (has_context(current)) former_ = current;
      detail::check(cudaSetDevice(on.ordinal()), "cudaSetDevice");
    }
    // After cudaSetDevice, since it makes the context of the current device.
    const cudaError_t code = cudaThreadExchangeStreamCaptureMode(&mode_);
    if (code == cudaSuccess) return;
    put_back();
    detail::check(code, "cudaThreadExchangeStreamCaptureMode");
  }
  device_guard(const device_guard&) = delete;
  device_guard& operator=(const device_guard&) = delete;
  ~device_guard() {
    detail::ignore(cudaThreadExchangeStreamCaptureMode(&mode_));
    put_back();
  }

 private:
  static constexpr int none = -1;

  void put_back() const noexcept {
    if (former_ != none) detail::ignore(cudaSetDevice(former_));
  }

  // The runtime has no such question; the driver's function is reached through the runtime, so that nothing links to
  // libcuda. Unknown counts as "yes", which restores.
  static bool has_context(int ordinal) {
    static const get_state ask = look_up();  // once for the process
    unsigned flags = 0;
    int active = 1;
    return ask == nullptr || ask(ordinal, &flags, &active) != 0 || active != 0;
  }

  using get_state = int (*)(int device, unsigned* flags, int* active);
  static get_state look_up() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t code =
        cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 7000, cudaEnableDefault, &found);
#else
    const cudaError_t code =
        cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &function, cudaEnableDefault, &found);
#endif
    detail::ignore(code);
    if (code != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
    return reinterpret_cast<get_state>(function);
  }

  int former_ = none;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the one to put back
};

namespace detail {

/// For destructors: runs a call that frees something of `on`, and ignores its failure.
template <class Call>
void give_back(device on, Call call) noexcept {
  try {
    const device_guard current(on);
    ignore(call());
  } catch (...) {  // no such device any more, say: then the call fails as well, and is still tried
    ignore(call());
  }
}

}  // namespace detail

}  // namespace millrace::cuda
