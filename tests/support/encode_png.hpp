// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <millrace/base/crc.hpp>

namespace millrace::test {

struct png_kind {
  int depth = 8, colours = 0;  ///< as PNG counts: 0 grey, 2 RGB, 3 palette, 4 grey and alpha
  bool interlaced = false;
};

inline std::string png_number(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xff);
  return text;
}

inline std::string png_chunk(const std::string& name, const std::string& body) {
  const std::string covered = name + body;
  return png_number(static_cast<std::uint32_t>(body.size())) + covered +
         png_number(crc32(0, covered.data(), covered.size()));
}

/// A zlib stream that is not compressed.
inline std::string png_data(const std::string& text) {
  std::uint32_t a = 1, b = 0;
  for (const char c : text) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  std::string out = "\x78\x01";
  for (std::size_t at = 0; at < text.size(); at += 65535) {
    const std::size_t size = std::min<std::size_t>(65535, text.size() - at);
    out += at + size == text.size() ? '\1' : '\0';
    for (const std::size_t n : {size, ~size}) out += {static_cast<char>(n & 0xff), static_cast<char>(n >> 8 & 0xff)};
    out += text.substr(at, size);
  }
  return out + png_number(b << 16 | a);
}

/// A PNG whose value of channel c at (x, y) is `value(x, y, c)`. The colours of palettes are far from their indices.
template <class Value>
std::string encode_png(int width, int height, png_kind kind, Value value) {
  const int channels = kind.colours == 2 ? 3 : kind.colours == 4 ? 2 : 1;
  std::string data;
  const auto pass = [&](int x0, int y0, int dx, int dy) {
    if (x0 >= width) return;
    for (int y = y0; y < height; y += dy) {
      data += '\0';  // no filter
      unsigned bits = 0;
      int held = 0;
      for (int x = x0; x < width; x += dx) {
        for (int c = 0; c < channels; ++c) {
          bits = bits << kind.depth | static_cast<unsigned>(value(x, y, c));
          held += kind.depth;
          for (; held >= 8; held -= 8) data += static_cast<char>(bits >> (held - 8) & 0xff);
        }
      }
      if (held > 0) data += static_cast<char>(bits << (8 - held) & 0xff);
    }
  };
  if (kind.interlaced) {
    const int passes[][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                             {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
    for (const auto& p : passes) pass(p[0], p[1], p[2], p[3]);
  } else {
    pass(0, 0, 1, 1);
  }
  std::string head = png_number(static_cast<std::uint32_t>(width)) + png_number(static_cast<std::uint32_t>(height));
  for (const int v : {kind.depth, kind.colours, 0, 0, kind.interlaced ? 1 : 0}) head += static_cast<char>(v);
  std::string file = "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", head);
  std::string palette;
  for (int i = 0; i < 1 << kind.depth && kind.colours == 3; ++i) {
    palette += {static_cast<char>(255 - i), static_cast<char>(i * 7), static_cast<char>(90)};
  }
  if (!palette.empty()) file += png_chunk("PLTE", palette);
  return file + png_chunk("IDAT", png_data(data)) + png_chunk("IEND", "");
}

}  // namespace millrace::test
