// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nvjpeg.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/cuda/stream_device.hpp>
#include <millrace/device/detail/slot_device.hpp>

/// \file
/// JPEGs decoded on a GPU (component millrace::nvjpeg). Including it, and nothing else of the library, needs nvJPEG.

namespace millrace::inline MILLRACE_ABI::cuda {

/// A call of nvJPEG failed: "nvjpegDecodeBatched failed: NVJPEG_STATUS_EXECUTION_FAILED (6)".
class nvjpeg_error : public millrace::error {
 public:
  nvjpeg_error(nvjpegStatus_t code, const char* call)
      : millrace::error(std::string(call) + " failed: " + name_of(code) + " (" +
                        std::to_string(static_cast<int>(code)) + ")"),
        code_(code) {}
  nvjpegStatus_t code() const noexcept { return code_; }

 private:
  static std::string name_of(nvjpegStatus_t code) {
    static constexpr const char* names[] = {"SUCCESS",
                                            "NOT_INITIALIZED",
                                            "INVALID_PARAMETER",
                                            "BAD_JPEG",
                                            "JPEG_NOT_SUPPORTED",
                                            "ALLOCATOR_FAILURE",
                                            "EXECUTION_FAILED",
                                            "ARCH_MISMATCH",
                                            "INTERNAL_ERROR",
                                            "IMPLEMENTATION_NOT_SUPPORTED",
                                            "INCOMPLETE_BITSTREAM"};
    const auto i = static_cast<std::size_t>(code);
    return i < sizeof names / sizeof names[0] ? std::string("NVJPEG_STATUS_") + names[i] : "a status without a name";
  }

  nvjpegStatus_t code_;
};

namespace detail {

inline void check(nvjpegStatus_t code, const char* call) {
  if (code != NVJPEG_STATUS_SUCCESS) throw nvjpeg_error(code, call);
}

/// The library's handle. Kept by the states that were made with it.
class nvjpeg_library {
 public:
  nvjpeg_library(device on, nvjpegBackend_t backend) : on_(on) {
    const device_guard current(on);
    check(nvjpegCreateEx(backend, nullptr, nullptr, NVJPEG_FLAGS_DEFAULT, &handle_), "nvjpegCreateEx");
    // Images differ in size: with whole pieces, a state's memory is soon enough for all batches.
    constexpr std::size_t piece = std::size_t(4) << 20;
    const nvjpegStatus_t on_gpu = nvjpegSetDeviceMemoryPadding(piece, handle_);
    const nvjpegStatus_t pinned = nvjpegSetPinnedMemoryPadding(piece, handle_);
    if (on_gpu == NVJPEG_STATUS_SUCCESS && pinned == NVJPEG_STATUS_SUCCESS) return;
    nvjpegDestroy(handle_);
    check(on_gpu, "nvjpegSetDeviceMemoryPadding");
    check(pinned, "nvjpegSetPinnedMemoryPadding");
  }
  nvjpeg_library(const nvjpeg_library&) = delete;
  nvjpeg_library& operator=(const nvjpeg_library&) = delete;
  ~nvjpeg_library() {
    try {
      const device_guard current(on_);
      nvjpegDestroy(handle_);
    } catch (...) {  // no such device any more
    }
  }
  nvjpegHandle_t get() const noexcept { return handle_; }
  device on() const noexcept { return on_; }

 private:
  device on_;
  nvjpegHandle_t handle_ = nullptr;
};

/// The library's working memory for a batch, on both sides. Each slot has one, as the GPU uses it until the batch is
/// decoded.
class nvjpeg_state {
 public:
  nvjpeg_state() noexcept = default;
  explicit nvjpeg_state(std::shared_ptr<const nvjpeg_library> of) : library_(std::move(of)) {
    const device_guard current(library_->on());
    check(nvjpegJpegStateCreate(library_->get(), &state_), "nvjpegJpegStateCreate");
  }
  nvjpeg_state(nvjpeg_state&& other) noexcept
      : library_(std::move(other.library_)),
        state_(std::exchange(other.state_, nullptr)),
        batch_(std::exchange(other.batch_, 0)) {}
  nvjpeg_state& operator=(nvjpeg_state&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(state_, other.state_);
    std::swap(batch_, other.batch_);
    return *this;
  }
  ~nvjpeg_state() {
    if (state_ == nullptr) return;
    try {
      const device_guard current(library_->on());
      nvjpegJpegStateDestroy(state_);
    } catch (...) {  // no such device any more
    }
  }

  explicit operator bool() const noexcept { return state_ != nullptr; }
  nvjpegHandle_t library() const noexcept { return library_->get(); }

  /// Enqueues the decoding of all; false if one of them cannot be decoded.
  bool decode(const std::vector<const unsigned char*>& files, const std::vector<std::size_t>& sizes,
              std::vector<nvjpegImage_t>& to, cudaStream_t stream) {
    if (batch_ != files.size()) {
      batch_ = 0;
      check(nvjpegDecodeBatchedInitialize(library(), state_, static_cast<int>(files.size()), 1, NVJPEG_OUTPUT_RGBI),
            "nvjpegDecodeBatchedInitialize");
      batch_ = files.size();
    }
    const nvjpegStatus_t code = nvjpegDecodeBatched(library(), state_, files.data(), sizes.data(), to.data(), stream);
    if (code == NVJPEG_STATUS_SUCCESS) return true;
    batch_ = 0;  // a batch that failed leaves it to be initialised again
    if (code != NVJPEG_STATUS_BAD_JPEG && code != NVJPEG_STATUS_JPEG_NOT_SUPPORTED &&
        code != NVJPEG_STATUS_INCOMPLETE_BITSTREAM && code != NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED) {
      check(code, "nvjpegDecodeBatched");
    }
    return false;
  }

 private:
  std::shared_ptr<const nvjpeg_library> library_;
  nvjpegJpegState_t state_ = nullptr;
  std::size_t batch_ = 0;  // images that it is initialised for
};

}  // namespace detail

/// A GPU that decodes the JPEGs of its batches itself, with nvJPEG: passed to to_device() in place of a stream.
///
///     const mill::image_decoder decoder({.height = 224, .width = 224});
///     ... p.pixels = decoder.undecoded(s["jpg"], s.from.at(s.key));              // in a map(): reads the header
///     ... mill::write_image(out, "image", p.pixels, p.box, p.flipped);           // in the collate()
///     ... | batch(256) | mill::to_device(mill::cuda::nvjpeg(copies))
///
/// A batch's files go to nvjpegDecodeBatched() together, on the stream of the copies, after its copy; wait() and
/// release() cover both. b.field("image") has the pixels, u8, HWC, as they were in the file: normalise_images() crops,
/// mirrors and resizes them. The host's part of the work is done on the stage's pool, one batch at a time.
///
/// Images that nvJPEG does not support are decoded on the host, by libjpeg-turbo, libspng or libwebp, into the same
/// batch: other formats, grey images, CMYK, RGB and unusual samplings, images that must be rotated, files without an
/// end, and the whole batch if nvJPEG refuses it, since it does not say for which image. A corrupt file is then a
/// decode_error that names its sample. Its pixels differ slightly from libjpeg-turbo's, and damage in the middle of a
/// file that it tolerates is no error: checksums of the samples find that (an index has them).
///
/// Memory: the pixels are in the slots of to_device(), which grow as images need it and are in the run's budget. nvJPEG
/// has some more for each slot, on the device and page-locked: not in the budget, allocated by the library, kept with
/// the slot from run to run. A copy is the same decoder; keep one for all epochs. Throws nvjpeg_error and cuda::error.
class MILLRACE_CUDA_DEFAULT_STREAM nvjpeg : public stream_device {
 public:
  using decoding = detail::nvjpeg_state;

  /// `backend`: which of its decoders. NVJPEG_BACKEND_HARDWARE is for GPUs that have one (A100, H100).
  explicit nvjpeg(stream copies, nvjpegBackend_t backend = NVJPEG_BACKEND_DEFAULT)
      : stream_device(std::move(copies)),
        library_(std::make_shared<detail::nvjpeg_library>(stream_device::copies().on(), backend)) {}

  /// For to_device(): enqueues images that are not taken yet and that it can decode, and marks these.
  void decode(std::vector<millrace::detail::image_to_decode>& images, decoding& with) const {
    std::vector<const unsigned char*> files;
    std::vector<std::size_t> sizes;
    std::vector<nvjpegImage_t> to;
    std::vector<millrace::detail::image_to_decode*> mine;
    for (millrace::detail::image_to_decode& i : images) {
      if (i.taken || !takes(*i.image)) continue;
      i.taken = true;
      mine.push_back(&i);
      files.push_back(reinterpret_cast<const unsigned char*>(i.image->data.data()));
      sizes.push_back(i.image->data.size());
      nvjpegImage_t place = {};
      place.channel[0] = i.place;
      place.pitch[0] = static_cast<std::size_t>(i.image->width) * 3;
      to.push_back(place);
    }
    if (files.empty()) return;
    const device_guard current(copies().on());
    if (!with) with = decoding(library_);
    if (with.decode(files, sizes, to, copies().get())) return;
    for (millrace::detail::image_to_decode* const i : mine) i->taken = false;
  }

 private:
  /// True if the file is complete: its marker of the end (EOI) is among the last bytes, few of which may follow it.
  /// nvJPEG decodes a truncated file as far as it goes, and reports success; the host refuses it.
  static bool has_end(std::string_view file) noexcept {
    constexpr std::size_t last = 4096;
    return file.substr(file.size() - std::min(file.size(), last)).rfind("\xff\xd9") != std::string_view::npos;
  }
  /// True if it gives the same image as the host, for which there is room.
  bool takes(const undecoded_image& image) const {
    if (!image.plain_jpeg || !has_end(image.data.view())) return false;
    int channels = 0;
    nvjpegChromaSubsampling_t sampling = NVJPEG_CSS_UNKNOWN;
    int widths[NVJPEG_MAX_COMPONENT] = {};
    int heights[NVJPEG_MAX_COMPONENT] = {};
    const nvjpegStatus_t code =
        nvjpegGetImageInfo(library_->get(), reinterpret_cast<const unsigned char*>(image.data.data()),
                           image.data.size(), &channels, &sampling, widths, heights);
    return code == NVJPEG_STATUS_SUCCESS && channels == 3 && sampling != NVJPEG_CSS_UNKNOWN &&
           widths[0] == image.width && heights[0] == image.height;
  }

  std::shared_ptr<const detail::nvjpeg_library> library_;
};

static_assert(millrace::device<nvjpeg>);

}  // namespace millrace::cuda
