// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/image.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/decode/image_decoder.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

/// A JPEG of one grey.
bytes grey(int width, int height, unsigned char value) {
  const std::vector<unsigned char> pixels(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3,
                                          value);
  return bytes::copy(examples::encode_jpeg(pixels, width, height, {.quality = 95, .subsampled = false}));
}

image_decoder whole_images() { return image_decoder({.height = 8, .width = 8}); }

bool is_all(const image& i, unsigned char value) {
  return std::all_of(i.pixels.begin(), i.pixels.end(), [value](std::uint8_t p) { return p == value; });
}

}  // namespace

TEST_CASE("an image without pixels, and one of a vector") {
  const image none;
  CHECK(none.pixels.empty());
  CHECK(byte_size(none) == 0);
  std::vector<std::uint8_t> mine(2 * 3 * 3, 7);
  const std::uint8_t* const where = mine.data();
  image of_mine(std::move(mine), 2, 3, 3);
  CHECK(of_mine.pixels.data() == where);
  CHECK(byte_size(of_mine) == 18);
  const image copy = of_mine;
  CHECK(copy.pixels == of_mine.pixels);
  CHECK(copy.pixels.data() != where);
  const image moved = std::move(of_mine);
  CHECK(moved.pixels.data() == where);
  CHECK(byte_size(moved) == 18);
}

TEST_CASE("a decoder and its copies use the memory of images again that are gone") {
  const bytes dark = grey(100, 80, 10);
  const bytes light = grey(100, 80, 200);
  const image_decoder decode = whole_images();
  const image_decoder copy = decode;
  image kept = decode.whole(dark);
  std::vector<const std::uint8_t*> seen;
  std::vector<pixel_buffer> heap;
  for (int i = 0; i < 4; ++i) {
    {
      const image next = (i % 2 == 0 ? copy : decode).whole(light);
      CHECK(is_all(next, 200));
      seen.push_back(next.pixels.data());
    }
    heap.push_back(pixel_buffer::allocate(100 * 80 * 3));  // it would take what went back to the heap
  }
  CHECK(std::count(seen.begin(), seen.end(), seen[0]) == 4);
  CHECK(seen[0] != kept.pixels.data());
  CHECK(is_all(kept, 10));
  const std::uint8_t* const first = kept.pixels.data();
  kept = image();
  CHECK(decode.whole(dark).pixels.data() == first);
}

TEST_CASE("an image that failed gives its memory back") {
  const bytes jpeg = grey(100, 80, 10);
  const bytes cut = jpeg.slice(0, jpeg.size() - 2);
  const image_decoder decode = whole_images();
  const std::uint8_t* const where = decode.whole(jpeg).pixels.data();
  std::vector<pixel_buffer> heap;
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(decode.whole(cut), decode_error);
    heap.push_back(pixel_buffer::allocate(100 * 80 * 3));
    CHECK(decode.whole(jpeg).pixels.data() == where);
  }
}

TEST_CASE("images outlive the decoder") {
  std::vector<image> images;
  {
    const image_decoder decode({.height = 8, .width = 8});
    for (int i = 0; i < 3; ++i) images.push_back(decode.whole(grey(100, 80, static_cast<unsigned char>(50 * i))));
    decode.whole(grey(100, 80, 1));
  }
  for (int i = 0; i < 3; ++i) CHECK(is_all(images[static_cast<std::size_t>(i)], static_cast<unsigned char>(50 * i)));
}

TEST_CASE("images of several threads are dropped on others") {
  const bytes small = grey(64, 64, 40);
  const bytes large = grey(90, 70, 90);
  std::mutex mutex;
  std::vector<image> shared;
  std::vector<int> wrong(3, 0);
  std::vector<std::thread> threads;
  {
    const image_decoder decode({.height = 8, .width = 8});
    for (std::size_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, decode, t] {
        for (int i = 0; i < 60; ++i) {
          const bool one = (i + static_cast<int>(t)) % 2 == 0;
          image mine = decode.whole(one ? small : large);
          if (!is_all(mine, one ? 40 : 90)) ++wrong[t];
          std::lock_guard lock(mutex);
          shared.push_back(std::move(mine));
          // The oldest goes, most likely another thread's.
          if (shared.size() > 4) shared.erase(shared.begin());
        }
      });
    }
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == std::vector<int>(3, 0));
  for (const image& i : shared) CHECK(is_all(i, i.height == 64 ? 40 : 90));
}
