// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <millrace/base/rng.hpp>

#include "bench/common/served.hpp"

namespace bench {

inline constexpr std::size_t line_bytes = 1600;  // with its line feed, on average
inline constexpr std::size_t text_bytes = 156000000;

/// A text file of text_bytes bytes: lines of 1.2 to 2 KB of printable text.
inline std::string make_text(std::uint64_t seed) {
  std::string text = noise(text_bytes, seed);
  for (char& c : text) c = static_cast<char>(' ' + (static_cast<unsigned char>(c) & 63));
  mill::rng random(seed);
  for (std::size_t at = 0;;) {
    at += line_bytes - 400 + static_cast<std::size_t>(random.next() % 801);
    if (at >= text.size()) break;
    text[at] = '\n';
  }
  text.back() = '\n';
  return text;
}

}  // namespace bench
