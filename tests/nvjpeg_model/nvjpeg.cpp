// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The functions of nvJPEG that the library calls. Signatures are those of its own header, which the compiler checks.

#include <nvjpeg.h>

#include <cstring>
#include <utility>
#include <vector>

#include "tests/nvjpeg_model/nvjpeg_model.hpp"

using millrace::nvjpeg_model::decode;
using millrace::nvjpeg_model::decode_work;
using millrace::nvjpeg_model::head;
using millrace::nvjpeg_model::read_jpeg;

struct nvjpegHandle {
  std::size_t device_padding = 1, pinned_padding = 1;
};
struct nvjpegJpegState {
  int batch = 0;  // what it is initialised for; 0: not
  void* pinned = nullptr;
  std::size_t pinned_size = 0;
  void* device = nullptr;
  std::size_t device_size = 0;
};

namespace {

std::size_t padded(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

extern "C" {

nvjpegStatus_t nvjpegCreateEx(nvjpegBackend_t, nvjpegDevAllocator_t* on_device, nvjpegPinnedAllocator_t* pinned,
                              unsigned, nvjpegHandle_t* handle) {
  if (on_device != nullptr || pinned != nullptr) return NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED;
  *handle = new nvjpegHandle();
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegDestroy(nvjpegHandle_t handle) {
  delete handle;
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegSetDeviceMemoryPadding(std::size_t padding, nvjpegHandle_t handle) {
  handle->device_padding = padding;
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegSetPinnedMemoryPadding(std::size_t padding, nvjpegHandle_t handle) {
  handle->pinned_padding = padding;
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegJpegStateCreate(nvjpegHandle_t, nvjpegJpegState_t* state) {
  *state = new nvjpegJpegState();
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegJpegStateDestroy(nvjpegJpegState_t state) {
  const bool freed = cudaFree(state->device) == cudaSuccess && cudaFreeHost(state->pinned) == cudaSuccess;
  delete state;
  return freed ? NVJPEG_STATUS_SUCCESS : NVJPEG_STATUS_ALLOCATOR_FAILURE;
}

nvjpegStatus_t nvjpegGetImageInfo(nvjpegHandle_t, const unsigned char* data, std::size_t length, int* channels,
                                  nvjpegChromaSubsampling_t* sampling, int* widths, int* heights) {
  head found;
  if (!read_jpeg(data, length, false, found)) return NVJPEG_STATUS_BAD_JPEG;
  *channels = found.channels;
  *sampling = static_cast<nvjpegChromaSubsampling_t>(found.sampling);
  for (int i = 0; i < NVJPEG_MAX_COMPONENT; ++i) {
    widths[i] = found.widths[i];
    heights[i] = found.heights[i];
  }
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegDecodeBatchedInitialize(nvjpegHandle_t, nvjpegJpegState_t state, int batch, int threads,
                                             nvjpegOutputFormat_t format) {
  if (batch < 1 || threads < 1 || format != NVJPEG_OUTPUT_RGBI) return NVJPEG_STATUS_INVALID_PARAMETER;
  state->batch = batch;
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegDecodeBatched(nvjpegHandle_t handle, nvjpegJpegState_t state, const unsigned char* const* data,
                                   const std::size_t* lengths, nvjpegImage_t* to, cudaStream_t stream) {
  const int n = std::exchange(state->batch, 0);  // of a batch that fails it knows nothing more
  if (n == 0) return NVJPEG_STATUS_INVALID_PARAMETER;
  std::size_t size = 0;
  std::vector<head> heads(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    head& found = heads[static_cast<std::size_t>(i)];
    if (!read_jpeg(data[i], lengths[i], true, found)) return NVJPEG_STATUS_BAD_JPEG;
    if (found.channels != 3) return NVJPEG_STATUS_JPEG_NOT_SUPPORTED;
    if (to[i].pitch[0] < static_cast<std::size_t>(found.widths[0]) * 3) return NVJPEG_STATUS_INVALID_PARAMETER;
    size += lengths[i];
  }
  if (state->pinned_size < size) {
    state->pinned_size = padded(size, handle->pinned_padding);
    if (cudaFreeHost(state->pinned) != cudaSuccess ||
        cudaHostAlloc(&state->pinned, state->pinned_size, 0) != cudaSuccess) {
      return NVJPEG_STATUS_ALLOCATOR_FAILURE;
    }
  }
  if (state->device_size < size) {
    state->device_size = padded(size, handle->device_padding);
    if (cudaFree(state->device) != cudaSuccess || cudaMalloc(&state->device, state->device_size) != cudaSuccess) {
      return NVJPEG_STATUS_ALLOCATOR_FAILURE;
    }
  }
  std::size_t at = 0;
  for (int i = 0; i < n; at += lengths[i], ++i) {
    std::memcpy(static_cast<unsigned char*>(state->pinned) + at, data[i], lengths[i]);
  }
  if (cudaMemcpyAsync(state->device, state->pinned, size, cudaMemcpyHostToDevice, stream) != cudaSuccess) {
    return NVJPEG_STATUS_EXECUTION_FAILED;
  }
  at = 0;
  for (int i = 0; i < n; at += lengths[i], ++i) {
    decode_work work;
    work.file = static_cast<const std::uint8_t*>(state->device) + at;
    work.size = lengths[i];
    work.to = to[i].channel[0];
    work.pitch = to[i].pitch[0];
    work.height = heads[static_cast<std::size_t>(i)].heights[0];
    work.width = heads[static_cast<std::size_t>(i)].widths[0];
    void* arguments[] = {&work};
    const auto* const kernel = reinterpret_cast<const void*>(&decode);
    if (cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream) != cudaSuccess) {
      return NVJPEG_STATUS_EXECUTION_FAILED;
    }
  }
  state->batch = n;
  return NVJPEG_STATUS_SUCCESS;
}

}  // extern "C"
