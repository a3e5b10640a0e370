// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/detail/resample.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using detail::resample_axis;
using detail::resampler;

namespace {

/// `rows` of `columns` pixels, resized to `height` x `width`.
std::vector<std::uint8_t> resized(resampler& r, const std::vector<std::uint8_t>& pixels, int columns, int height,
                                  int width) {
  const std::size_t row = static_cast<std::size_t>(columns) * 4;
  const std::uint8_t* next = pixels.data() + static_cast<std::size_t>(r.across.begin) * row;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 4);
  const auto next_row = [&](std::uint8_t* to) {
    REQUIRE(next + row <= pixels.data() + pixels.size());
    std::memcpy(to, next, row);
    next += row;
  };
  r.run(row, static_cast<std::size_t>(r.along.begin) * 4, next_row, [&](std::size_t y, const std::uint8_t* from) {
    std::memcpy(out.data() + y * static_cast<std::size_t>(width) * 4, from, static_cast<std::size_t>(width) * 4);
  });
  return out;
}

std::vector<std::uint8_t> noise(int columns, int rows, rng& random) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows) * 4);
  for (std::uint8_t& p : pixels) p = static_cast<std::uint8_t>(random.next());
  return pixels;
}

constexpr image_filter filters[] = {image_filter::nearest, image_filter::bilinear, image_filter::bicubic,
                                    image_filter::lanczos};

}  // namespace

TEST_CASE("weights of every pixel add up to one and stay within the range") {
  rng random(1);
  resample_axis axis;
  for (int i = 0; i < 400; ++i) {
    const int size = 1 + static_cast<int>(random.below(600));
    const int out = 1 + static_cast<int>(random.below(300));
    const double from = random.uniform() * size * 0.9;
    const double to = from + (size - from) * (0.01 + 0.99 * random.uniform());
    const int low = static_cast<int>(from);
    const int high = std::max(low + 1, static_cast<int>(std::ceil(to)));
    axis.set(filters[i % 4], from, to, low, high, out);
    int before = low;
    for (std::size_t k = 0; k < axis.first.size(); ++k) {
      CAPTURE(i, k, size, out, from, to);
      const auto begin = axis.weights.begin() + static_cast<std::ptrdiff_t>(k * axis.stride);
      REQUIRE(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(axis.stride), 0) == 1 << resample_axis::unit_bits);
      REQUIRE(axis.count[k] >= 1);
      REQUIRE(axis.count[k] <= axis.most);
      REQUIRE(axis.first[k] >= before);  // rows come once and in order
      REQUIRE(axis.first[k] + axis.count[k] <= high);
      before = axis.first[k];
    }
    REQUIRE(axis.begin >= low);
    REQUIRE(axis.end <= high);
  }
}

TEST_CASE("a mean of whole pixels is exact, and one colour stays that colour") {
  resampler r;
  const std::vector<std::uint8_t> pixels = {0, 10, 20, 0, 100, 50, 60, 0, 200, 30, 40, 0, 60, 70, 80, 0};
  r.along.set(image_filter::bilinear, 0, 4, 0, 4, 4);
  r.across.set(image_filter::bilinear, 0, 1, 0, 1, 1);
  CHECK(resized(r, pixels, 4, 1, 4) == pixels);
  r.along.set(image_filter::nearest, 0, 4, 0, 4, 2);
  CHECK(resized(r, pixels, 4, 1, 2) == std::vector<std::uint8_t>{100, 50, 60, 0, 60, 70, 80, 0});
  for (const image_filter filter : filters) {
    for (const int out : {1, 3, 17, 90}) {
      r.along.set(filter, 0, 31, 0, 31, out);
      r.across.set(filter, 0, 9, 0, 9, out);
      const std::vector<std::uint8_t> grey(31 * 9 * 4, 201);
      CHECK(resized(r, grey, 31, out, out) == std::vector<std::uint8_t>(static_cast<std::size_t>(out * out) * 4, 201));
    }
  }
}

TEST_CASE("with vectors or without, the result is the same to the bit") {
  rng random(3);
  resampler fast;
  resampler plain;
  plain.plain = true;
  for (int i = 0; i < 200; ++i) {
    const int columns = 1 + static_cast<int>(random.below(200));
    const int rows = 1 + static_cast<int>(random.below(60));
    const int width = 1 + static_cast<int>(random.below(70));
    const int height = 1 + static_cast<int>(random.below(40));
    CAPTURE(i, columns, rows, width, height);
    const std::vector<std::uint8_t> pixels = noise(columns, rows, random);
    const double left = random.uniform() * columns * 0.5;
    for (resampler* r : {&fast, &plain}) {
      r->along.set(filters[i % 4], left, columns, static_cast<int>(left), columns, width);
      r->across.set(filters[i % 4], 0, rows, 0, rows, height);
    }
    REQUIRE(resized(fast, pixels, columns, height, width) == resized(plain, pixels, columns, height, width));
  }
}
