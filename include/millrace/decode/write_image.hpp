// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/decode/image.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/device/undecoded_image.hpp>

namespace millrace::inline MILLRACE_ABI {

/// For a collate() whose images have sizes of their own: writes one at its own size, and the part to take of it, for
/// normalise_images() to crop, mirror and resize on the batch's device. The batch has NAME (ragged, u8), NAME_offsets
/// and NAME_parts:
///
///     void collate(const photo& p, mill::sample_writer& out) {
///       out.key(p.key);
///       mill::write_image(out, "image", p.pixels, p.box, p.flipped);
///       out.write("label", p.label);
///     }
///
/// `box` is the result of image_crop::box(), or image_box(0, 0, width, height). Copies the pixels. Throws decode_error
/// for an image that has not three channels, or not as many bytes as it says, or of which the box is no part.
void write_image(sample_writer& out, const char* name, const image& i, const image_box& box, bool flipped = false);

/// Writes an image that is not decoded yet: to_device() does that, and b.field(name) has the pixels, which
/// b.host_field(name) has not. The file stays in the memory that it is in, until the batch's slot is used again. One
/// such field a batch. Throws decode_error if the box is no part of the image, or if there is none.
void write_image(sample_writer& out, const char* name, const undecoded_image& i, const image_box& box,
                 bool flipped = false);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/write_image.ipp>
#endif
