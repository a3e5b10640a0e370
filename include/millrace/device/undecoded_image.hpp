// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/pixel_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
/// Decodes on the host the images that a device leaves. Thread-safe.
class host_image_decoder {
 public:
  host_image_decoder() = default;
  host_image_decoder(const host_image_decoder&) = delete;
  host_image_decoder& operator=(const host_image_decoder&) = delete;
  virtual ~host_image_decoder() = default;
  /// All pixels, red, green and blue, 8 bits each, rows from the top without a gap. Throws decode_error.
  virtual pixel_buffer pixels(const bytes& data, const where& at) const = 0;
};
}  // namespace detail

/// An image of which only the header has been read: the file as it came, and its decoded size. Made by
/// image_decoder::undecoded(), put into a batch by write_image(), and decoded by to_device(): on a GPU where that gets
/// a cuda::nvjpeg, else on the host. The default is no image.
///
/// A slice of the memory that the file is in, so that memory stays as long as the image, or its batch.
class undecoded_image {
 public:
  bytes data;                 ///< the file
  int height = 0, width = 0;  ///< in pixels, upright if the decoder turns images
  /// A JPEG of three channels (YCbCr), 8 bits, Huffman coded, with one of the usual samplings and nothing to be turned:
  /// every decoder of a GPU takes it.
  bool plain_jpeg = false;
  std::shared_ptr<const detail::host_image_decoder> on_host;  ///< decodes it on the host

  /// Bytes of its pixels.
  std::size_t pixel_bytes() const noexcept {
    return static_cast<std::size_t>(height) * static_cast<std::size_t>(width) * 3;
  }
  friend std::size_t byte_size(const undecoded_image& i) noexcept { return i.data.size(); }
};

}  // namespace millrace
