// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/rng.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A 128-bit hash. Not cryptographic: it detects accidents, not forgery.
struct hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  /// 32 hexadecimal digits, in lower case.
  std::string text() const;
  /// Parses the result of text(); nullopt for anything else.
  static std::optional<hash128> parse(std::string_view text) noexcept;

  friend bool operator==(const hash128&, const hash128&) = default;
};

/// The hash128 of bytes and numbers that come one after the other. The bytes' hash depends on how they were cut into
/// calls: it is for whole texts and for records. Results are equal on every platform.
class hasher128 {
 public:
  void add(std::uint64_t word) noexcept {
    low_ = detail::mix64(low_ ^ word);
    high_ = detail::mix64(high_ + word * 0x9fb21c651e98df25u);
    ++words_;
  }
  /// The length, then the bytes, by eights.
  void add(std::string_view bytes) noexcept {
    add(bytes.size());
    for (; bytes.size() >= 8; bytes.remove_prefix(8)) add(word_of(bytes, 8));
    if (!bytes.empty()) add(word_of(bytes, bytes.size()));
  }
  void add(const hash128& other) noexcept {
    add(other.high);
    add(other.low);
  }
  hash128 value() const noexcept {
    return {detail::mix64(high_ ^ detail::mix64(low_ + words_)), detail::mix64(low_ ^ detail::mix64(high_))};
  }

 private:
  /// The first `n`, the first of them lowest.
  static std::uint64_t word_of(std::string_view bytes, std::size_t n) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), n);
    return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
  }

  std::uint64_t high_ = 0x6d696c6c72616365;  // "millrace"
  std::uint64_t low_ = 0x6861736831323821;   // "hash128!"
  std::uint64_t words_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::string hash128::text() const {
  unsigned char bytes[16];
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<unsigned char>(high >> (56 - 8 * i));
    bytes[8 + i] = static_cast<unsigned char>(low >> (56 - 8 * i));
  }
  std::string out;
  text::append_hex(out, bytes);
  return out;
}

inline std::optional<hash128> hash128::parse(std::string_view text) noexcept {
  if (text.size() != 32) return std::nullopt;
  hash128 out;
  for (std::size_t i = 0; i < 32; ++i) {
    const int digit = text::hex_digit(text[i]);
    if (digit < 0 || (text[i] >= 'A' && text[i] <= 'F')) return std::nullopt;
    std::uint64_t& half = i < 16 ? out.high : out.low;
    half = half << 4 | static_cast<std::uint64_t>(digit);
  }
  return out;
}

}  // namespace millrace
