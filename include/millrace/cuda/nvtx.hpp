// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<nvtx3/nvToolsExt.h>)
#error "millrace/cuda/nvtx.hpp needs NVTX 3: the package cuda-nvtx of the CUDA Toolkit, or nvidia-nvtx of PyPI"
#endif

#include <nvtx3/nvToolsExt.h>

#include <millrace/coro/tracer.hpp>
#include <millrace/version.hpp>

/// \file
/// Jobs, copies and training steps in NVIDIA's profilers, beside the kernels:
///
///     mill::runtime rt({.ranges = &mill::cuda::nvtx_ranges});   // nsys profile -t nvtx,cuda ./train
///
/// Not part of millrace_cuda.hpp: NVTX is headers alone, and looks for a profiler when the first range begins.

namespace millrace::inline MILLRACE_ABI::cuda {

namespace detail {

/// A domain of the library's own: the program's ranges are another stack, and profilers can show or leave out either.
inline nvtxDomainHandle_t nvtx_domain() noexcept {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("millrace");
  return domain;
}
inline void nvtx_push(const char* name) noexcept {
  nvtxEventAttributes_t range = {};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(nvtx_domain(), &range);
}
inline void nvtx_pop() noexcept { nvtxDomainRangePop(nvtx_domain()); }

}  // namespace detail

/// For runtime_options::ranges: ranges of the NVTX domain "millrace". Without a profiler a range is two calls that
/// return at once.
inline constexpr profiler_ranges nvtx_ranges = {&detail::nvtx_push, &detail::nvtx_pop};

}  // namespace millrace::cuda
