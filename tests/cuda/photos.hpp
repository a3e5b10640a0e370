// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/cuda/stream.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/write_image.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/device/undecoded_image.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/cuda/session.hpp"

/// Photos for the tests of images that are decoded after their batch's copy.
namespace millrace::test {

/// The kinds that nvJPEG takes, and those that it does not.
enum class kind { plain, full, progressive, grey, cmyk, turned };
inline constexpr kind taken[] = {kind::plain, kind::full, kind::progressive};
inline constexpr kind all_kinds[] = {kind::plain, kind::grey, kind::full, kind::cmyk, kind::turned, kind::progressive};

inline std::string file_of(kind k, int number) {
  const int height = 17 + number % 7;
  const int width = 24 + number % 5;
  const int channels = k == kind::grey ? 1 : k == kind::cmyk ? 4 : 3;
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width * channels; ++x) pixels.push_back(static_cast<std::uint8_t>(x * 3 + y * 5 + number * 40));
  }
  examples::jpeg_kind how;
  how.channels = channels;
  how.subsampled = k != kind::full;
  how.progressive = k == kind::progressive;
  std::string file = examples::encode_jpeg(pixels, width, height, how);
  if (k == kind::turned) {  // EXIF's orientation 3: upside down
    const std::string head("\xff\xe1\0\x22", 4);
    const std::string exif("Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x03\0\0\0\0\0\0", 32);
    file.insert(2, head + exif);
  }
  return file;
}

inline const image_decoder& decoder() {
  static const image_decoder made({.height = 8, .width = 8});
  return made;
}

class photo {
 public:
  photo(int i, kind k) : number(i), image(decoder().undecoded(bytes::copy(file_of(k, i)))) {}
  int number;
  undecoded_image image;
};

inline void collate(const photo& p, sample_writer& out) {
  out.key("p" + std::to_string(p.number));
  static const auto tar = std::make_shared<const shard>("s3://photos/one.tar");
  out.tag(origin(tar, 0, static_cast<std::uint64_t>(p.number)));
  out.write("number", static_cast<std::int64_t>(p.number));
  write_image(out, "image", p.image, image_box(1, 2, p.image.width - 3, p.image.height - 0.5), p.number % 2 == 1);
}

inline async_generator<photo> photos(int n, std::vector<kind> kinds) {
  for (int i = 0; i < n; ++i) {
    photo p(i, kinds[static_cast<std::size_t>(i) % kinds.size()]);
    co_yield give(p);
  }
}
inline std::vector<kind> of_gpu() { return {std::begin(taken), std::end(taken)}; }
inline std::vector<kind> of_all() { return {std::begin(all_kinds), std::end(all_kinds)}; }

/// The pixels of a batch as they are on the GPU; the batch is let go.
inline std::string pixels_of(device_batch& b, const cuda::stream& work) {
  b.wait(work);
  const tensor_view pixels = b.field("image");
  std::string got = read_back(work.get(), pixels.data(), pixels.bytes());
  b.release(work);
  return got;
}

/// Those that the host makes of photos from `begin` to before `end`.
inline std::string wanted(int begin, int end, const std::vector<kind>& kinds) {
  std::string all;
  for (int i = begin; i < end; ++i) {
    const image one = decoder().whole(bytes::copy(file_of(kinds[static_cast<std::size_t>(i) % kinds.size()], i)));
    all.append(reinterpret_cast<const char*>(one.pixels.data()), one.pixels.size());
  }
  return all;
}

/// Whether they are the same: to the bit on the models, on average by nvJPEG itself.
inline bool alike(const std::string& got, const std::string& expected) {
  if (got.size() != expected.size()) return false;
#ifdef MILLRACE_TEST_REAL_CUDA
  std::size_t sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    sum += static_cast<std::size_t>(
        std::abs(static_cast<unsigned char>(got[i]) - static_cast<unsigned char>(expected[i])));
  }
  return sum <= got.size() * 3;
#else
  return got == expected;
#endif
}

}  // namespace millrace::test
