// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/jpeg_decoder.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/decode/parse_label.hpp>

#include "examples/common/encode_jpeg.hpp"
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

}  // namespace

TEST_CASE("a JPEG becomes pixels, at full size and smaller") {
  const bytes jpeg = ramp(65, 33);
  const image whole = jpeg_decoder()(jpeg);
  CHECK(whole.width == 65);
  CHECK(whole.height == 33);
  CHECK(whole.channels == 3);
  REQUIRE(whole.pixels.size() == 65u * 33 * 3);
  CHECK(std::abs(whole.pixels[(16 * 65 + 32) * 3] - 32 * 255 / 65) < 8);
  CHECK(std::abs(whole.pixels[(16 * 65 + 32) * 3 + 1] - 16 * 255 / 33) < 8);
  CHECK(std::abs(whole.pixels[(16 * 65 + 32) * 3 + 2] - 100) < 8);
  for (int scale : {2, 4, 8}) {
    const image small = jpeg_decoder({.scale = scale})(jpeg);
    CHECK(small.width == (65 + scale - 1) / scale);
    CHECK(small.height == (33 + scale - 1) / scale);
    REQUIRE(small.pixels.size() == static_cast<std::size_t>(small.width * small.height * 3));
    // The ramp is still there: every pixel has the colour of the square that it stands for (but for the last ones,
    // whose squares are cut).
    int others = 0;
    for (int y = 0; y + 1 < small.height; ++y) {
      for (int x = 0; x + 1 < small.width; ++x) {
        const std::uint8_t* const pixel = small.pixels.data() + (y * small.width + x) * 3;
        const bool right = std::abs(pixel[0] - (2 * x + 1) * scale * 255 / (2 * 65)) < 12 &&
                           std::abs(pixel[1] - (2 * y + 1) * scale * 255 / (2 * 33)) < 12 &&
                           std::abs(pixel[2] - 100) < 12;
        others += right ? 0 : 1;
      }
    }
    CHECK(others == 0);
  }
  CHECK(jpeg_decoder({.channels = 1})(jpeg).pixels.size() == 65u * 33);
}

TEST_CASE("a JPEG is decoded straight into memory of the right size only") {
  const bytes jpeg = ramp(16, 8);
  std::vector<std::uint8_t> memory(16 * 8 * 3);
  jpeg_decoder().into(memory, 8, 16, jpeg);
  CHECK(memory == jpeg_decoder()(jpeg).pixels);
  CHECK_THROWS_AS(jpeg_decoder().into(memory, 16, 8, jpeg), decode_error);
}

TEST_CASE("what is no whole JPEG is an error that says where") {
  const bytes jpeg = ramp(64, 64);
  const where at{"s3://b/shard.tar", 512, "sample7"};
  const auto failure = [&](const bytes& data, jpeg_options o = {}) {
    try {
      const jpeg_decoder decode(o);
      decode(data, at);
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
  CHECK_FALSE(failure(jpeg.slice(0, jpeg.size() * 2 / 3), {.tolerate_corruption = true}));
  CHECK(failure(jpeg, {.max_pixels = 100}));
  std::string huge(jpeg.view());
  const std::size_t frame = huge.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  for (std::size_t i = 5; i < 9; ++i) huge[frame + i] = '\xff';  // 65535 x 65535
  CHECK(failure(bytes::copy(huge)));
  CHECK_THROWS_AS(jpeg_decoder({.scale = 3}), configuration_error);
}

TEST_CASE("mutated JPEGs never do worse than fail") {
  const bytes jpeg = ramp(48, 48);
  const jpeg_decoder decode({.max_pixels = 1 << 20});
  std::uint64_t state = 1;
  int failed = 0;
  for (int i = 0; i < 500; ++i) {
    std::string text(jpeg.view());
    for (int k = 0; k < 4; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text[(state >> 33) % text.size()] = static_cast<char>(state >> 20);
    }
    try {
      decode(bytes::copy(text));
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
  const jpeg_decoder decode({.tolerate_corruption = true});
  const std::size_t first_scan = std::string(jpeg.view()).find("\xff\xda");
  REQUIRE(first_scan != std::string::npos);
  const std::size_t from = first_scan + 14;  // behind the scan's header: what is damaged is data and later headers
  std::vector<std::uint8_t> rows(64 * 64 * 3);
  const auto last_row = rows.end() - 64 * 3;
  int accepted = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    rng random(seed);
    std::string text(jpeg.view());
    for (int k = 0; k < 6; ++k) text[from + random.below(text.size() - from)] = static_cast<char>(random.below(256));
    std::fill(rows.begin(), rows.end(), std::uint8_t(0xab));
    try {
      decode.into(rows, 64, 64, bytes::copy(text));
      ++accepted;
      REQUIRE_FALSE(std::all_of(last_row, rows.end(), [](std::uint8_t b) { return b == 0xab; }));
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
    CHECK_THROWS_AS(jpeg_decoder()(without_end), decode_error);
    CHECK(jpeg_decoder({.tolerate_corruption = true})(without_end).pixels == jpeg_decoder()(jpeg).pixels);
  }
}

TEST_CASE("a warning in the header is damage like any other") {
  const bytes jpeg = ramp(32, 32);
  const image sound = jpeg_decoder()(jpeg);
  std::string between(jpeg.view());
  between.insert(2, "abc");  // bytes that belong to no marker
  std::string version(jpeg.view());
  const std::size_t jfif = version.find("JFIF");
  REQUIRE(jfif != std::string::npos);
  version[jfif + 5] = 3;  // the major version
  for (const std::string& text : {between, version}) {
    CHECK_THROWS_AS(jpeg_decoder()(bytes::copy(text)), decode_error);
    CHECK(jpeg_decoder({.tolerate_corruption = true})(bytes::copy(text)).pixels == sound.pixels);
  }
  // What is an error and no warning stays one.
  std::string cut(jpeg.view());
  cut.resize(cut.find("\xff\xc0"));  // ends before the size is known
  CHECK_THROWS_AS(jpeg_decoder({.tolerate_corruption = true})(bytes::copy(cut)), decode_error);
}

TEST_CASE("one decoder serves many threads") {
  const bytes jpeg = ramp(32, 32);
  const jpeg_decoder decode;
  const image expected = decode(jpeg);
  std::vector<int> same(4, 0);
  std::vector<std::thread> threads;
  for (int& ok : same) {
    threads.emplace_back([&] {
      bool all = true;
      for (int i = 0; i < 50; ++i) all = all && decode(jpeg).pixels == expected.pixels;
      ok = all ? 1 : 0;
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(same == std::vector<int>(4, 1));
}

TEST_CASE("reference images: the decoder agrees with libjpeg-turbo's own pixels") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data");
  const image i = jpeg_decoder()(bytes::copy(test::read_file(folder + "/jpeg/libjpeg-turbo/testorig.jpg")));
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
  CHECK_THROWS_AS(jpeg_decoder()(bytes::copy(test::read_file(folder + "/jpeg/libjpeg-turbo/monkey12.jpg"))),
                  decode_error);
}

TEST_CASE("labels are numbers and nothing else") {
  CHECK(parse_label(bytes::copy("7")) == 7);
  CHECK(parse_label(bytes::copy(" -12\n")) == -12);
  for (const char* bad : {"", " ", "x", "1.5", "7 8", "99999999999999999999"}) {
    CHECK_THROWS_AS(parse_label(bytes::copy(bad)), decode_error);
  }
}
