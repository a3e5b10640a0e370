// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::fuzz {

/// A file that is right, with edits from the input, so that few of its bytes decide: of each 4 bytes of the input two
/// are a place, one is the kind of edit and one its value. Of an input that begins with a zero byte the rest is the
/// file.
inline std::string edited(std::string file, const std::uint8_t* data, std::size_t size) {
  if (size != 0 && data[0] == 0) return std::string(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (std::size_t i = 1; i + 4 <= size && !file.empty(); i += 4) {
    const std::size_t at = (data[i] | static_cast<std::size_t>(data[i + 1]) << 8) % file.size();
    const auto value = static_cast<char>(data[i + 3]);
    switch (data[i + 2] % 6) {
      case 0:
        file[at] = value;
        break;
      case 1:
        file[at] = static_cast<char>(file[at] ^ value);
        break;
      case 2:
        file.insert(at, 1, value);
        break;
      case 3:
        file.erase(at, 1 + data[i + 3] % 16);
        break;
      case 4:  // a large number
        for (std::size_t k = at; k < std::min(at + 4, file.size()); ++k) file[k] = value;
        break;
      default:
        if (data[i + 3] % 8 == 0) file.resize(at);
    }
  }
  return file;
}

/// Numbers as files have them.
inline std::string little(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 0xff);
  return out;
}

}  // namespace millrace::fuzz
