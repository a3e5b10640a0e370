// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/cuda/device.hpp>

namespace millrace::cuda {

/// Makes a device the calling thread's current one until the end of the scope, then puts the former one back.
///
/// A thread that never chose a device has device 0 as its current one, without a context there. Such a device is
/// not put back: cudaSetDevice would create the context (hundreds of megabytes), and on a machine with eight ranks all
/// eight would have one on device 0. So such a thread keeps the device it first worked for.
///
/// Within the scope the thread's capture mode is relaxed: what the loop asks and allocates must not end a graph that
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

/// For destructors: runs a call that gives something of `on` back, and forgets its failure.
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
