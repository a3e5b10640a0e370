// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/decode/detail/image_source.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Numbers of a TIFF file, in its byte order; 0 beyond its end.
class tiff_numbers {
 public:
  tiff_numbers(std::string_view data, bool little) noexcept : data_(data), little_(little) {}

  std::uint64_t at(std::size_t place, std::size_t length) const noexcept {
    if (place > data_.size() || length > data_.size() - place) return 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < length; ++i) {
      const auto byte = static_cast<unsigned char>(data_[place + i]);
      value |= std::uint64_t(byte) << 8 * (little_ ? i : length - 1 - i);
    }
    return value;
  }
  /// The first value of a directory's entry; 0 if it has none or is no number. Numbers below 0 and fractions come
  /// out as no orientation.
  double value_of(std::size_t entry) const noexcept {
    const std::uint64_t type = at(entry + 2, 2);
    const std::uint64_t count = at(entry + 4, 4);
    const std::size_t size = size_of_type(type);
    if (count == 0 || size == 0) return 0;
    const std::size_t place = count * size <= 4 ? entry + 8 : static_cast<std::size_t>(at(entry + 8, 4));
    const std::uint64_t bits = at(place, type == 5 || type == 10 ? 4 : size);
    if (type == 11) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (type == 12) return std::bit_cast<double>(bits);
    if (type != 5 && type != 10) return static_cast<double>(bits);
    const auto below = static_cast<double>(at(place + 4, 4));
    return below == 0 ? 0 : static_cast<double>(bits) / below;
  }

 private:
  /// Sizes of the types that hold numbers (TIFF 6.0, section 2; IFD and LONG8 of its supplements), in bytes. BYTE,
  /// ASCII and UNDEFINED hold bytes: Pillow does not take them for a number either.
  static std::size_t size_of_type(std::uint64_t type) noexcept {
    constexpr std::uint8_t sizes[] = {0, 0, 0, 2, 4, 8, 1, 0, 2, 4, 8, 4, 8, 4, 0, 0, 8};
    return type < sizeof sizes ? sizes[type] : 0;
  }

  std::string_view data_;
  bool little_;
};

MILLRACE_INLINE int exif_orientation(std::string_view data) noexcept {
  constexpr std::string_view prefix("Exif\0\0", 6);
  while (data.starts_with(prefix)) data.remove_prefix(prefix.size());
  const bool little = data.starts_with("II");
  if (!little && !data.starts_with("MM")) return 0;
  const tiff_numbers numbers(data, little);
  // Some programs write 42 in the other order.
  if (const std::uint64_t magic = numbers.at(2, 2); magic != 42 && magic != 42 << 8) return 0;
  const auto directory = static_cast<std::size_t>(numbers.at(4, 4));
  if (directory < 8) return 0;
  const std::uint64_t entries = numbers.at(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * 12;
    if (entry + 12 > data.size()) break;
    if (numbers.at(entry, 2) != 0x0112) continue;
    const double value = numbers.value_of(entry);
    const int whole = value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    return whole == value ? whole : 1;
  }
  return 0;
}

MILLRACE_INLINE int xmp_orientation(std::string_view packet) noexcept {
  constexpr std::string_view name = "tiff:Orientation";
  for (std::size_t at = 0; (at = packet.find(name, at)) != std::string_view::npos;) {
    at += name.size();
    const std::string_view after = packet.substr(at, 3);
    const std::size_t digit = after.starts_with("=\"") ? 2 : after.starts_with(">") ? 1 : 3;
    if (digit >= after.size() || after[digit] < '0' || after[digit] > '9') continue;
    return after[digit] >= '1' && after[digit] <= '8' ? after[digit] - '0' : 1;
  }
  return 0;
}

}  // namespace millrace::detail
