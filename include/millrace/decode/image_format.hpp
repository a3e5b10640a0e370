// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace {

/// Formats of images that are known by their first bytes.
enum class image_format : std::uint8_t { unknown, jpeg, png, webp };

/// The format by content; what the data are called says nothing.
constexpr image_format image_format_of(std::string_view data) noexcept {
  if (data.starts_with("\xff\xd8")) return image_format::jpeg;
  if (data.starts_with("\x89PNG\r\n\x1a\n")) return image_format::png;
  if (data.size() >= 12 && data.starts_with("RIFF") && data.substr(8, 4) == "WEBP") return image_format::webp;
  return image_format::unknown;
}

}  // namespace millrace
