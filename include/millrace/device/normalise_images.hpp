// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include <millrace/device/detail/pixel_work.hpp>
#include <millrace/device/device_batch.hpp>
#include <millrace/device/image_part.hpp>
#include <millrace/device/tensor_view.hpp>

namespace millrace {

/// Of the channels red, green and blue, for values from 0 to 1.
struct normalise_options {
  std::array<float, 3> mean = {0, 0, 0};
  std::array<float, 3> std = {1, 1, 1};
};

/// Makes the images of a batch, 8 bits a channel, HWC, what a network takes: `to`, a tensor of the program's own, of at
/// least b.size() x 3 x height x width (CHW), f16, bf16 or f32, gets (value / 255 - mean) / std, rounded to nearest.
///
/// This is for a batch of host_device, on the calling thread, one value after the other: to try a program without a
/// GPU. The one for a GPU is in cuda/normalise_images.hpp, and does the same: a batch of bytes is a quarter of one of
/// f32, and half of one of f16, on its way through memory and over PCIe.
///
/// The field is one of two kinds:
/// - u8, samples x H x W x 3, what decode_images() makes unless told otherwise: then it has cropped and flipped.
/// - ragged (sample_writer::ragged()): u8, the pixels of images of mixed sizes, with the fields FIELD_offsets, and
///   FIELD_parts, which says for each what is cropped and flipped: what write_image() makes. Padding rows
///   become zeros.
///
/// A part that has the size of the result, with edges between pixels, is taken as it is: decode_images() gives the same
/// to the bit. Any other is resized by a triangle that widens as the image shrinks (image_filter::bilinear, without
/// that one's rounding to 8 bits between); pixels beside the part do not count.
///
/// Call the batch's wait() before and its release() after, as for other work on it. Errors:
/// configuration_error for tensors of other shapes or types, a std that is not above 0, a batch of another device;
/// decode_error, which names the sample, for a part that is not inside of its image, or an image that is not inside of
/// its bytes.
void normalise_images(const device_batch& b, std::string_view field, const tensor_view& to,
                      const normalise_options& options = {});

namespace detail {
/// The work for this batch, after its checks on the host.
pixel_work pixel_work_of(const device_batch& b, std::string_view field, const tensor_view& to,
                         const normalise_options& options);
}  // namespace detail

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/impl/normalise_images.ipp>
#endif
