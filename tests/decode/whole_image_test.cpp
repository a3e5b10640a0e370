// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/image_decoder.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/decode/parse_label.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;

namespace {

bytes encode(const std::vector<unsigned char>& pixels, int width, int height, bool progressive = false) {
  const examples::jpeg_kind kind{.quality = 95, .subsampled = false, .progressive = progressive};
  return bytes::copy(examples::encode_jpeg(pixels, width, height, kind));
}

/// A JPEG of a smooth ramp, made here so that most of the tests need no files.
bytes ramp(int width, int height, bool progressive = false) {
  std::vector<unsigned char> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      pixels.push_back(static_cast<unsigned char>(x * 255 / width));
      pixels.push_back(static_cast<unsigned char>(y * 255 / height));
      pixels.push_back(100);
    }
  }
  return encode(pixels, width, height, progressive);
}

const image_decoder& decoder() {
  static const image_decoder one({.height = 8, .width = 8});
  return one;
}
const image_decoder& tolerant() {
  static const image_decoder one({.height = 8, .width = 8, .tolerate_corruption = true});
  return one;
}

}  // namespace

TEST_CASE("a JPEG becomes pixels") {
  const bytes jpeg = ramp(65, 33);
  const image whole = decoder().whole(jpeg);
  CHECK(whole.width == 65);
  CHECK(whole.height == 33);
  CHECK(whole.channels == 3);
  REQUIRE(whole.pixels.size() == 65u * 33 * 3);
  CHECK(std::abs(whole.pixels[(16 * 65 + 32) * 3] - 32 * 255 / 65) < 8);
  CHECK(std::abs(whole.pixels[(16 * 65 + 32) * 3 + 1] - 16 * 255 / 33) < 8);
  CHECK(std::abs(whole.pixels[(16 * 65 + 32) * 3 + 2] - 100) < 8);
}

TEST_CASE("what is no whole JPEG is an error that says where") {
  const bytes jpeg = ramp(64, 64);
  const where at{"s3://b/shard.tar", 512, "sample7"};
  const auto failure = [&](const bytes& data, const image_decoder& decode = decoder()) {
    try {
      decode.whole(data, at);
    } catch (const decode_error& e) {
      CHECK(e.object() == "s3://b/shard.tar");
      CHECK(e.offset() == 512u);
      CHECK(e.key() == "sample7");
      return true;
    }
    return false;
  };
  CHECK(failure(bytes()));
  CHECK(failure(bytes::copy("GIF89a not a jpeg")));
  CHECK(failure(jpeg.slice(0, 2)));
  for (std::size_t cut = 2; cut + 20 < jpeg.size(); cut += 37) CHECK(failure(jpeg.slice(0, cut)));
  CHECK_FALSE(failure(jpeg.slice(0, jpeg.size() * 2 / 3), tolerant()));
  CHECK(failure(jpeg, image_decoder({.height = 8, .width = 8, .max_pixels = 100})));
  std::string huge(jpeg.view());
  const std::size_t frame = huge.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  for (std::size_t i = 5; i < 9; ++i) huge[frame + i] = '\xff';  // 65535 x 65535
  CHECK(failure(bytes::copy(huge)));
}

TEST_CASE("mutated JPEGs never do worse than fail") {
  const bytes jpeg = ramp(48, 48);
  const image_decoder decode({.height = 8, .width = 8, .max_pixels = 1 << 20});
  std::uint64_t state = 1;
  int failed = 0;
  for (int i = 0; i < 500; ++i) {
    std::string text(jpeg.view());
    for (int k = 0; k < 4; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text[(state >> 33) % text.size()] = static_cast<char>(state >> 20);
    }
    try {
      decode.whole(bytes::copy(text));
    } catch (const decode_error&) {
      ++failed;
    }
  }
  CHECK(failed > 0);
}

TEST_CASE("damage is tolerated only where pixels came of it") {
  // Of a progressive JPEG no row is written before all of it has been read, so an error leaves the rows as they were;
  // and where libjpeg warned before the error, the code that it leaves is the one of a warning.
  const bytes jpeg = ramp(64, 64, true);
  // The memory of an image that is gone is the next one's.
  const bytes before = encode(std::vector<unsigned char>(64 * 64 * 3, 0xab), 64, 64);
  const std::size_t first_scan = std::string(jpeg.view()).find("\xff\xda");
  REQUIRE(first_scan != std::string::npos);
  const std::size_t from = first_scan + 14;  // after the scan's header: what is damaged is data and later headers
  int accepted = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::string text(jpeg.view());
    for (int k = 0; k < 6; ++k) text[from + random.below(text.size() - from)] = static_cast<char>(random.below(256));
    const std::uint8_t* const memory = tolerant().whole(before).pixels.data();
    try {
      const image made = tolerant().whole(bytes::copy(text));
      REQUIRE(made.pixels.data() == memory);
      ++accepted;
      const auto last_row = made.pixels.end() - 64 * 3;
      REQUIRE_FALSE(std::all_of(last_row, made.pixels.end(), [](std::uint8_t b) { return b == 0xab; }));
    } catch (const decode_error&) {
      ++refused;
    }
  }
  CHECK(accepted > 0);
  CHECK(refused > 0);
}

TEST_CASE("damaged images whose last row is black, or white, are tolerated as well") {
  for (const int colour : {0x00, 0xff}) {
    CAPTURE(colour);
    const std::vector<unsigned char> pixels(32 * 32 * 3, static_cast<unsigned char>(colour));
    const bytes jpeg = encode(pixels, 32, 32);
    const bytes without_end = jpeg.slice(0, jpeg.size() - 2);
    CHECK_THROWS_AS(decoder().whole(without_end), decode_error);
    CHECK(tolerant().whole(without_end).pixels == decoder().whole(jpeg).pixels);
  }
}

TEST_CASE("what is odd in a header and costs no pixel is no error; what is missing there is, even with tolerance") {
  const test::captured_stderr said(test::captured_stderr::into::pipe);
  const bytes jpeg = ramp(32, 32);
  const image sound = decoder().whole(jpeg);
  std::string between(jpeg.view());
  between.insert(2, "abc");  // bytes that belong to no marker
  std::string version(jpeg.view());
  const std::size_t jfif = version.find("JFIF");
  REQUIRE(jfif != std::string::npos);
  version[jfif + 5] = 3;  // the major version
  for (const std::string& text : {between, version}) {
    CHECK(decoder().whole(bytes::copy(text)).pixels == sound.pixels);
    CHECK(tolerant().whole(bytes::copy(text)).pixels == sound.pixels);
  }
  std::string cut(jpeg.view());
  cut.resize(cut.find("\xff\xc0"));  // ends before the size is known
  CHECK_THROWS_AS(tolerant().whole(bytes::copy(cut)), decode_error);
}

TEST_CASE("one decoder serves many threads") {
  const bytes jpeg = ramp(32, 32);
  const image_decoder decode({.height = 8, .width = 8});
  const image expected = decode.whole(jpeg);
  std::vector<int> same(4, 0);
  std::vector<std::thread> threads;
  for (int& ok : same) {
    threads.emplace_back([&] {
      bool all = true;
      for (int i = 0; i < 50; ++i) all = all && decode.whole(jpeg).pixels == expected.pixels;
      ok = all ? 1 : 0;
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(same == std::vector<int>(4, 1));
}

TEST_CASE("reference images: the decoder agrees with libjpeg-turbo's own pixels") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data");
  const image i = decoder().whole(bytes::copy(test::read_file(folder + "/jpeg/libjpeg-turbo/testorig.jpg")));
  CHECK(i.width == 227);
  CHECK(i.height == 149);
  const std::string ppm = test::read_file(folder + "/jpeg/libjpeg-turbo/testorig.ppm");
  REQUIRE(ppm.size() >= i.pixels.size());
  long difference = 0;
  for (std::size_t k = 0; k < i.pixels.size(); ++k) {
    difference += std::abs(i.pixels[k] - static_cast<unsigned char>(ppm[ppm.size() - i.pixels.size() + k]));
  }
  CHECK(static_cast<double>(difference) / static_cast<double>(i.pixels.size()) < 6);
  // 12 bits a sample: refused, not misread.
  CHECK_THROWS_AS(decoder().whole(bytes::copy(test::read_file(folder + "/jpeg/libjpeg-turbo/monkey12.jpg"))),
                  decode_error);
}

TEST_CASE("an image whose pixels are as stored is the same as one that is turned and turned back") {
  // Rows of three bytes a pixel come from libjpeg as they are; all others through four.
  const bytes jpeg = ramp(61, 37);
  std::string turned(jpeg.view());
  const std::string exif(
      "\xff\xe1\0\x22"
      "Exif\0\0II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0",
      36);
  turned.insert(2, exif);  // by 180 degrees
  const image plain = decoder().whole(jpeg);
  const image other = decoder().whole(bytes::copy(turned));
  REQUIRE(other.width == 61);
  int wrong = 0;
  for (std::size_t i = 0; i < 61u * 37; ++i) {
    for (std::size_t c = 0; c < 3; ++c) wrong += plain.pixels[i * 3 + c] != other.pixels[(61u * 37 - 1 - i) * 3 + c];
  }
  CHECK(wrong == 0);
  CHECK(image_decoder({.height = 8, .width = 8, .upright = false}).whole(bytes::copy(turned)).pixels == plain.pixels);
}

TEST_CASE("a field that cannot be decoded on a pool is named by shard, offset and key") {
  sample s("train/1", origin(std::make_shared<const shard>("s3://b/a.tar"), 512, 0));
  s.fields.emplace_back("jpg", bytes::copy("no image"));
  const auto decode = [](sample taken) { return decoder().whole(taken["jpg"]); };
  cpu_pool cores(2);
  testing::virtual_loop loop;
  auto images = from_range(std::vector<sample>{s}) | map_concurrent(decode, {.on = cores});
  CHECK_THROWS_WITH(block_on(loop, collect(std::move(images))),
                    "s3://b/a.tar at byte 512, train/1: not an image: it begins as no JPEG, PNG or WebP does");
}

TEST_CASE("labels are numbers and nothing else") {
  CHECK(parse_label(bytes::copy("7")) == 7);
  CHECK(parse_label(bytes::copy(" -12\n")) == -12);
  for (const char* bad : {"", " ", "x", "1.5", "7 8", "99999999999999999999"}) {
    CHECK_THROWS_AS(parse_label(bytes::copy(bad)), decode_error);
  }
}
