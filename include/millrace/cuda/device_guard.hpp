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
class device_guard {
 public:
  /// Throws cuda::error when there is no such device.
  explicit device_guard(device on) {
    int current = 0;
    detail::check(cudaGetDevice(&current), "cudaGetDevice");
    if (current == on.ordinal()) return;
    if (has_context(current)) former_ = current;
    detail::check(cudaSetDevice(on.ordinal()), "cudaSetDevice");
  }
  device_guard(const device_guard&) = delete;
  device_guard& operator=(const device_guard&) = delete;
  ~device_guard() {
    if (former_ != none) detail::ignore(cudaSetDevice(former_));
  }

 private:
  static constexpr int none = -1;

  // The runtime has no such question; the driver's function is reached through the runtime, so that nothing links to
  // libcuda. Unknown counts as "yes", which restores.
  static bool has_context(int ordinal) {
    using get_state = int (*)(int device, unsigned* flags, int* active);
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
    if (code != cudaSuccess || found != cudaDriverEntryPointSuccess || function == nullptr) return true;
    unsigned flags = 0;
    int active = 1;
    return reinterpret_cast<get_state>(function)(ordinal, &flags, &active) != 0 || active != 0;
  }

  int former_ = none;
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
