// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/image_decoder.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using detail::resize_geometry;
using detail::resizer;

namespace {

constexpr image_filter filters[] = {image_filter::nearest, image_filter::bilinear, image_filter::bicubic,
                                    image_filter::lanczos};

resize_geometry whole(int columns, int rows, int width, int height, image_filter filter) {
  resize_geometry g;
  g.columns = columns;
  g.rows = rows;
  g.box = image_box(0, 0, columns, rows);
  g.width = width;
  g.height = height;
  g.filter = filter;
  return g;
}

/// The result, channel by channel, of rows of four bytes a pixel.
std::vector<std::uint8_t> resized(resizer& r, const std::vector<std::uint8_t>& pixels, const resize_geometry& g) {
  r.begin(g);
  for (int y = 0; y < g.rows; ++y) r.put_row(pixels.data() + static_cast<std::ptrdiff_t>(y) * g.columns * 4);
  std::vector<std::uint8_t> out;
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < g.height; ++y) {
      const std::uint8_t* const row = r.row(c, static_cast<std::size_t>(y));
      out.insert(out.end(), row, row + g.width);
    }
  }
  return out;
}

std::vector<std::uint8_t> noise(int columns, int rows, rng& random) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows) * 4);
  for (std::uint8_t& p : pixels) p = static_cast<std::uint8_t>(random.next());
  return pixels;
}

}  // namespace

TEST_CASE("an image of the same size stays as it is, and nearest takes pixels as they are") {
  resizer r;
  const std::vector<std::uint8_t> pixels = {0, 10, 20, 0, 100, 50, 60, 0, 200, 30, 40, 0, 60, 70, 80, 0};
  CHECK(resized(r, pixels, whole(4, 1, 4, 1, image_filter::bilinear)) ==
        std::vector<std::uint8_t>{0, 100, 200, 60, 10, 50, 30, 70, 20, 60, 40, 80});
  CHECK(resized(r, pixels, whole(4, 1, 2, 1, image_filter::nearest)) ==
        std::vector<std::uint8_t>{100, 60, 50, 70, 60, 80});
}

TEST_CASE("one colour stays that colour, whatever becomes of the size") {
  resizer r;
  for (const image_filter filter : filters) {
    for (const std::uint8_t value : std::vector<std::uint8_t>{0, 1, 201, 255}) {
      for (const int out : {1, 3, 17, 90, 300}) {
        CAPTURE(static_cast<int>(filter), static_cast<int>(value), out);
        const std::vector<std::uint8_t> flat(31 * 9 * 4, value);
        CHECK(resized(r, flat, whole(31, 9, out, out, filter)) ==
              std::vector<std::uint8_t>(static_cast<std::size_t>(out * out) * 3, value));
      }
    }
  }
}

TEST_CASE("a very wide image, and one of a single pixel, are resized too") {
  resizer r;
  rng random(2);
  for (const image_filter filter : filters) {
    const std::vector<std::uint8_t> wide = noise(65535, 2, random);
    CHECK(resized(r, wide, whole(65535, 2, 40, 40, filter)).size() == 40 * 40 * 3);
    CHECK(resized(r, wide, whole(2, 65535, 40, 40, filter)).size() == 40 * 40 * 3);
    const std::vector<std::uint8_t> one = {7, 8, 9, 0};
    const std::vector<std::uint8_t> out = resized(r, one, whole(1, 1, 5, 5, filter));
    for (std::size_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == 7 + i / 25);
  }
}

TEST_CASE("with vectors or without, with a plan used again or a new one, the result is the same to the bit") {
  rng random(3);
  resizer fast;
  resizer plain(true);
  for (int i = 0; i < 2000; ++i) {
    // Many narrow ones: vectors take four neighbours at once, which not all of them have.
    const int columns = 1 + static_cast<int>(random.below(i % 2 == 0 ? 24 : 200));
    const int rows = 1 + static_cast<int>(random.below(60));
    const int width = 1 + static_cast<int>(random.below(70));
    const int height = 1 + static_cast<int>(random.below(40));
    CAPTURE(i, columns, rows, width, height);
    const std::vector<std::uint8_t> pixels = noise(columns, rows, random);
    resize_geometry g = whole(columns, rows, width, height, filters[i % 4]);
    g.box.left = random.uniform() * columns * 0.5;
    g.box.bottom -= random.uniform() * rows * 0.5;
    const std::vector<std::uint8_t> once = resized(fast, pixels, g);
    REQUIRE(once == resized(plain, pixels, g));
    resized(fast, noise(columns, rows, random), g);
    REQUIRE(once == resized(fast, pixels, g));
  }
}
