// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/device/detail/decode_in_slot.hpp>

namespace millrace::detail {

MILLRACE_INLINE std::vector<image_to_decode> find_images(const host_batch& batch, void* memory) {
  const batch_layout& layout = batch.layout();
  std::optional<std::size_t> field;
  for (std::size_t i = 0; i < layout.fields().size(); ++i) {
    if (layout.fields()[i].on_host()) continue;
    if (field) {
      throw configuration_error("a batch has one field of undecoded images, and this one has " +
                                layout.fields()[*field].name() + " and " + layout.fields()[i].name());
    }
    field = i;
  }
  std::vector<image_to_decode> found;
  if (!field) return found;
  auto* const pixels = layout.tensor(memory, *field, batch.size()).as<std::uint8_t>();
  const auto* const offsets = batch.field(layout.fields()[*field].name() + "_offsets").as<const std::int64_t>();
  const std::span<const undecoded_image> images = batch.tags<undecoded_image>();
  const std::span<const origin> from = batch.tags<origin>();
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::string& key = batch.keys()[i];
    const where at = from.empty() ? where{std::string(), std::nullopt, key} : from[i].at(key);
    const auto room = static_cast<std::size_t>(offsets[i + 1] - offsets[i]);
    if (room != images[i].pixel_bytes()) {
      throw configuration_error("the sample " + key + " has room for " + std::to_string(room) + " bytes in " +
                                layout.fields()[*field].name() + ", and its undecoded_image has " +
                                std::to_string(images[i].pixel_bytes()));
    }
    if (room == 0) continue;  // fills the batch up
    found.push_back({&images[i], pixels + offsets[i], at});
  }
  return found;
}

}  // namespace millrace::detail
