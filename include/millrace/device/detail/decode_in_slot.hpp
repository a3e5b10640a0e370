// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
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

/// Images of one batch and where each one's pixels go.
struct images_to_decode {
  std::vector<const undecoded_image*> images;
  std::vector<std::uint8_t*> places;
  std::vector<where> from;  // for errors
};

/// The images of a batch whose memory on the device is `memory`. Throws configuration_error for a batch with several
/// such fields.
images_to_decode find_images(const host_batch& batch, void* memory);

/// Enqueues, behind the batch's copy, the decoding of its images into `memory`: by the device what it takes, on the
/// host the others, whose pixels are added to `staged` and stay there until an event behind this is reached. Throws
/// decode_error, which names the sample.
template <device D>
void decode_in_slot(const D& on, const host_batch& batch, void* memory, typename decoding_of<D>::type& decoding,
                    std::vector<pixel_buffer>& staged) {
  images_to_decode found = find_images(batch, memory);
  std::vector<bool> taken(found.images.size(), false);
  if constexpr (requires { typename D::decoding; }) taken = on.decode(found.images, found.places, decoding);
  for (std::size_t i = 0; i < found.images.size(); ++i) {
    const undecoded_image& image = *found.images[i];
    if (taken[i]) continue;
    pixel_buffer pixels = image.on_host->pixels(image.data, found.from[i]);
    if (pixels.size() != image.pixel_bytes()) throw decode_error("the image has changed its size", found.from[i]);
    on.copy_to_device(found.places[i], pixels.data(), pixels.size());
    staged.push_back(std::move(pixels));
  }
}

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/detail/impl/decode_in_slot.ipp>
#endif
