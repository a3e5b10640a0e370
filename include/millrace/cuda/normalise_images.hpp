// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <millrace/cuda/stream.hpp>
#include <millrace/device/normalise_images.hpp>

/// \file For .cu files: this is a kernel, for nvcc. For other compilers it is empty, except in tests, which define
/// nvcc's built-in names.

#if defined(__CUDACC__) || defined(MILLRACE_KERNELS_ARE_FUNCTIONS)

namespace millrace::inline MILLRACE_ABI::cuda {

namespace detail {

/// A thread for each pixel of the result; images in turn if there are more than a grid is high.
template <dtype Type>
__global__ void normalise(millrace::detail::pixel_work w) {
  const std::int64_t pixel = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pixel >= static_cast<std::int64_t>(w.height) * w.width) return;
  const int y = static_cast<int>(pixel / w.width);
  const int x = static_cast<int>(pixel % w.width);
  for (std::int64_t i = blockIdx.y; i < w.images; i += gridDim.y) millrace::detail::write_pixel<Type>(w, i, y, x);
}

}  // namespace detail

/// millrace::normalise_images() on a GPU: one kernel on `work`, the training's stream. The host does not wait.
///
///     b.wait(work);
///     mill::cuda::normalise_images(b, "image", to, work, {.mean = {0.485f, 0.456f, 0.406f},
///                                                         .std = {0.229f, 0.224f, 0.225f}});
///     b.release(work);  // or after the step, if it reads the batch's labels
///
/// `to` is memory of that GPU, not otherwise used until `work` is done with it. Release the batch after the kernel, by
/// release(). Throws configuration_error also if batch and stream are of different GPUs, and cuda::error.
MILLRACE_CUDA_DEFAULT_STREAM inline void normalise_images(const device_batch& b, std::string_view field,
                                                          const tensor_view& to, const stream& work,
                                                          const normalise_options& options = {}) {
  if (b.device() != work.on().name()) {
    throw configuration_error("a batch on " + b.device() + " is to be normalised on a stream of " + work.on().name());
  }
  millrace::detail::pixel_work w = millrace::detail::pixel_work_of(b, field, to, options);
  if (w.images == 0) return;
  const void* kernel = to.type() == dtype::f32   ? reinterpret_cast<const void*>(&detail::normalise<dtype::f32>)
                       : to.type() == dtype::f16 ? reinterpret_cast<const void*>(&detail::normalise<dtype::f16>)
                                                 : reinterpret_cast<const void*>(&detail::normalise<dtype::bf16>);
  constexpr unsigned threads = 256;
  constexpr std::int64_t highest = 65535;  // the maximum of a grid
  const std::int64_t across = (static_cast<std::int64_t>(w.height) * w.width + threads - 1) / threads;
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(w.images < highest ? w.images : highest));
  void* arguments[] = {&w};
  const device_guard current(work.on());
  detail::check(cudaLaunchKernel(kernel, grid, dim3(threads), arguments, 0, work.get()), "cudaLaunchKernel");
}

}  // namespace millrace::cuda

#endif
