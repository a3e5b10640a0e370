// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/host_batch.hpp>
#include <millrace/device/undecoded_image.hpp>

namespace millrace::detail {

/// What a device that decodes keeps for one slot, from batch to batch: its `decoding`. Of others nothing.
struct no_decoding {};
template <class D>
struct decoding_of {
  using type = no_decoding;
};
template <class D>
requires requires { typename D::decoding; }
struct decoding_of<D> {
  using type = typename D::decoding;
};

/// An image of a batch.
struct image_to_decode {
  const undecoded_image* image = nullptr;
  std::uint8_t* place = nullptr;  ///< where its pixels go, on the device
  where from;                     ///< for errors
  bool taken = false;             ///< by the device; the host decodes the others
};

/// The images of a batch whose memory on the device is `memory`. Throws configuration_error for a batch with several
/// such fields.
std::vector<image_to_decode> find_images(const host_batch& batch, void* memory);

/// Enqueues, behind the batch's copy, the decoding of its images into `memory`: by the device what it takes, on the
/// host the others, whose pixels are added to `staged` and stay there until an event behind this is reached. A device
/// that keeps images has on.keep() called behind all of them. Throws decode_error, which names the sample.
template <device D>
void decode_in_slot(const D& on, const host_batch& batch, void* memory, typename decoding_of<D>::type& decoding,
                    std::vector<pixel_buffer>& staged) {
  std::vector<image_to_decode> found = find_images(batch, memory);
  if constexpr (requires { typename D::decoding; }) on.decode(found, decoding);
  for (const image_to_decode& i : found) {
    if (i.taken) continue;
    pixel_buffer pixels = i.image->on_host->pixels(i.image->data, i.from);
    if (pixels.size() != i.image->pixel_bytes()) throw decode_error("the image has changed its size", i.from);
    on.copy_to_device(i.place, pixels.data(), pixels.size());
    staged.push_back(std::move(pixels));
  }
  if constexpr (requires { on.keep(found, decoding); }) on.keep(found, decoding);
}

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/detail/impl/decode_in_slot.ipp>
#endif
