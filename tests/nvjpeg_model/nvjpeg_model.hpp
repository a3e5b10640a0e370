// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// A model of nvJPEG for both models of the CUDA runtime, of which it uses what every program has: copies, kernels and
/// memory. As a decoder that shares the work between host and GPU does, it looks through the files at the call, puts
/// them into page-locked memory of its state, copies them to memory of the GPU, also its state's, and starts a kernel
/// for each image: so a state that is used again too early, pixels that are read too early and memory that is freed too
/// early are seen by the models of the runtime. Decodes by libjpeg-turbo.
namespace millrace::nvjpeg_model {

/// One image's way through the kernel; all pointers are the GPU's.
struct decode_work {
  const std::uint8_t* file = nullptr;
  std::size_t size = 0;
  void* to = nullptr;
  std::size_t pitch = 0;
  int height = 0, width = 0;
  std::size_t pixel_bytes() const {
    return pitch * static_cast<std::size_t>(height - 1) + static_cast<std::size_t>(width) * 3;
  }
};
/// The kernel, of one thread.
void decode(decode_work work);

/// What a file's header says.
struct head {
  int channels = 0;
  int widths[4] = {}, heights[4] = {};
  int sampling = -1;  // nvjpegChromaSubsampling_t
};
/// False for what libjpeg-turbo refuses, up to the end of the file when `whole`, but for a file that is cut off; `to`:
/// where its pixels go.
bool read_jpeg(const std::uint8_t* file, std::size_t size, bool whole, head& found, std::uint8_t* to = nullptr,
               std::size_t pitch = 0);

}  // namespace millrace::nvjpeg_model
