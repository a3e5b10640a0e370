// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <millrace/decode/image_options.hpp>
#include <millrace/device/detail/narrow_float.hpp>

namespace millrace::detail {

/// Stores rows of channels of 8 bits as the tensor that was asked for: of each value there are but 256, so what becomes
/// of them is looked up.
class pixel_writer {
 public:
  explicit pixel_writer(const image_options& o);

  /// Row `y` of a tensor of `width` x `height` that begins at `tensor`, from the rows of red, green and blue;
  /// `mirrored`: its last pixel first.
  void write(void* tensor, std::size_t width, std::size_t height, std::size_t y, const std::uint8_t* const* channels,
             bool mirrored) const noexcept;

 private:
  /// Whether multiplication and addition give the very values of the table: it is rounded once more, so with some means
  /// they do not.
  bool is_linear() const;
  /// By vectors, where the processor has them; returns how many of the row's pixels.
  std::size_t store_vectors(void* tensor, std::size_t width, std::size_t height, std::size_t y,
                            const std::uint8_t* const* channels, bool mirrored) const noexcept;

  image_layout layout_;
  dtype type_;
  float scale_[3] = {};
  float offset_[3] = {};
  bool vectors_ = false;  // see store_vectors()
  std::vector<float> wide_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/impl/pixel_writer.ipp>
#endif
