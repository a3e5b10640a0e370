// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::test {

/// The message with the padding that MD5 and SHA-2 share: a one bit, zeros, the length in bits.
inline std::string padded_message(std::string_view message, bool big_endian) {
  std::string text(message);
  text += '\x80';
  while (text.size() % 64 != 56) text += '\0';
  const std::uint64_t bits = std::uint64_t(message.size()) * 8;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(bits >> 8 * (big_endian ? 7 - i : i));
  return text;
}

inline std::string hex_words(const std::uint32_t* words, int count, bool big_endian) {
  std::string out;
  for (int w = 0; w < count; ++w) {
    for (int i = 0; i < 4; ++i) {
      const unsigned byte = words[w] >> 8 * (big_endian ? 3 - i : i) & 255;
      out += "0123456789abcdef"[byte >> 4];
      out += "0123456789abcdef"[byte & 15];
    }
  }
  return out;
}

/// RFC 1321. For comparing with recorded sums only.
inline std::string md5_hex(std::string_view message) {
  static const int shifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
  std::uint32_t sines[64];
  for (int i = 0; i < 64; ++i) sines[i] = static_cast<std::uint32_t>(std::floor(std::fabs(std::sin(i + 1.0)) * 0x1p32));
  std::uint32_t h[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  const std::string text = padded_message(message, false);
  for (std::size_t at = 0; at < text.size(); at += 64) {
    std::uint32_t m[16] = {};
    for (std::size_t i = 0; i < 64; ++i) {
      m[i / 4] |= std::uint32_t(static_cast<unsigned char>(text[at + i])) << 8 * (i % 4);
    }
    std::uint32_t a = h[0], b = h[1], c = h[2], d = h[3];
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t f = i < 16   ? (b & c) | (~b & d)
                              : i < 32 ? (d & b) | (~d & c)
                              : i < 48 ? b ^ c ^ d
                                       : c ^ (b | ~d);
      const int g = i < 16 ? i : i < 32 ? (5 * i + 1) % 16 : i < 48 ? (3 * i + 5) % 16 : 7 * i % 16;
      const std::uint32_t turned = std::rotl(a + f + sines[i] + m[g], shifts[i / 16][i % 4]);
      a = d;
      d = c;
      c = b;
      b += turned;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
  }
  return hex_words(h, 4, false);
}

/// FIPS 180-4. For comparing with recorded sums only.
inline std::string sha256_hex(std::string_view message) {
  // The constants are the first 32 bits of the fractions of roots of primes.
  std::uint32_t k[64];
  std::uint32_t h[8];
  for (int n = 2, found = 0; found < 64; ++n) {
    bool prime = true;
    for (int d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    const auto fraction = [](long double x) {
      return static_cast<std::uint32_t>(std::floor((x - std::floor(x)) * 0x1p32L));
    };
    k[found] = fraction(std::cbrt(static_cast<long double>(n)));
    if (found < 8) h[found] = fraction(std::sqrt(static_cast<long double>(n)));
    ++found;
  }
  const std::string text = padded_message(message, true);
  for (std::size_t at = 0; at < text.size(); at += 64) {
    std::uint32_t w[64] = {};
    for (std::size_t i = 0; i < 64; ++i) w[i / 4] = w[i / 4] << 8 | static_cast<unsigned char>(text[at + i]);
    for (int i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    std::uint32_t v[8];
    for (int i = 0; i < 8; ++i) v[i] = h[i];
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t s1 = std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25);
      const std::uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
      const std::uint32_t s0 = std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22);
      const std::uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      for (int j = 7; j > 0; --j) v[j] = v[j - 1];
      v[4] += t1;
      v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; ++i) h[i] += v[i];
  }
  return hex_words(h, 8, true);
}

}  // namespace millrace::test
