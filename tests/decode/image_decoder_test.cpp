// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/image_decoder.hpp>

#include <spng.h>
#include <webp/encode.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/decode/image.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

std::vector<std::uint8_t> picture(int width, int height, int channels, std::uint64_t seed = 1) {
  std::vector<std::uint8_t> pixels;
  rng random(seed);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double wave = 100 * std::sin(x * 0.11 * (c + 1)) * std::cos(y * 0.07 * (c + 2));
        pixels.push_back(static_cast<std::uint8_t>(128 + wave + static_cast<double>(random.below(20))));
      }
    }
  }
  return pixels;
}

bytes jpeg(int width, int height, examples::jpeg_kind kind = {}) {
  return bytes::copy(examples::encode_jpeg(picture(width, height, kind.channels), width, height, kind));
}

/// The JPEG with an EXIF orientation.
bytes turned(const bytes& file, int orientation) {
  std::string text(file.view());
  std::string exif = "Exif";
  exif += std::string("\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 21);
  exif += static_cast<char>(orientation);
  exif += std::string("\0\0\0\0\0\0", 6);
  const std::size_t size = exif.size() + 2;  // with itself
  text.insert(2, std::string("\xff\xe1") + static_cast<char>(size >> 8) + static_cast<char>(size & 255) + exif);
  return bytes::copy(text);
}

bytes png(const std::uint8_t* pixels, int width, int height) {
  spng_ctx* const state = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(state, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr head = {};
  head.width = static_cast<std::uint32_t>(width);
  head.height = static_cast<std::uint32_t>(height);
  head.bit_depth = 8;
  head.color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  spng_set_ihdr(state, &head);
  const std::size_t size = static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3;
  REQUIRE(spng_encode_image(state, pixels, size, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE) == 0);
  std::size_t length = 0;
  int error = 0;
  void* const data = spng_get_png_buffer(state, &length, &error);
  bytes out = bytes::copy(std::string_view(static_cast<const char*>(data), length));
  std::free(data);
  spng_ctx_free(state);
  return out;
}
bytes png(const image& i) { return png(i.pixels.data(), i.width, i.height); }

bytes webp(int width, int height, bool lossless) {
  const std::vector<std::uint8_t> pixels = picture(width, height, 3);
  std::uint8_t* data = nullptr;
  const std::size_t size = lossless ? WebPEncodeLosslessRGB(pixels.data(), width, height, width * 3, &data)
                                    : WebPEncodeRGB(pixels.data(), width, height, width * 3, 80, &data);
  bytes out = bytes::copy(std::string_view(reinterpret_cast<const char*>(data), size));
  WebPFree(data);
  return out;
}

/// The low `size` bytes of a number, the lowest first.
std::string number(int value, std::size_t size) {
  std::string text;
  for (; text.size() < size; value >>= 8) text += static_cast<char>(value & 0xff);
  return text;
}
std::string chunk_of(const std::string& name, const std::string& body) {
  return name + number(static_cast<int>(body.size()), 4) + body + std::string(body.size() % 2, '\0');
}

/// An animation of WebPs that are as large as said, on a canvas, the first of them at (left, top).
bytes animated(const std::vector<bytes>& frames, int width, int height, int canvas_width, int canvas_height, int left,
               int top) {
  std::string body = "WEBP";
  body += chunk_of("VP8X", number(2, 4) + number(canvas_width - 1, 3) + number(canvas_height - 1, 3));
  body += chunk_of("ANIM", number(-1, 4) + number(0, 2));  // on white, for ever
  for (const bytes& frame : frames) {
    body += chunk_of("ANMF", number(left / 2, 3) + number(top / 2, 3) + number(width - 1, 3) + number(height - 1, 3) +
                                 number(40, 3) + number(0, 1) + std::string(frame.view().substr(12)));
    left = top = 0;
  }
  return bytes::copy(chunk_of("RIFF", body));
}

template <class T = std::uint8_t>
std::vector<T> tensor_of(const image_options& options, const bytes& data, std::uint64_t seed = 0) {
  const image_decoder decode(options);
  std::vector<T> values(decode.dims().elements());
  rng numbers(seed);
  decode.into(tensor_view(values.data(), options.type, decode.dims()), data, numbers);
  return values;
}

std::string refusal(const bytes& data, image_options options = {.height = 32, .width = 32}) {
  const where at{"s3://b/a.tar", 512, "k7"};
  try {
    const image_decoder decode(options);
    std::vector<std::uint8_t> values(decode.dims().elements());
    rng numbers(0);
    decode.into(tensor_view(values.data(), options.type, decode.dims()), data, numbers, at);
  } catch (const decode_error& e) {
    CHECK(e.object() == "s3://b/a.tar");
    CHECK(e.offset() == 512u);
    CHECK(e.key() == "k7");
    return e.reason();
  }
  return "nothing was refused";
}

}  // namespace

TEST_CASE("a part of a JPEG has the pixels that it has in the whole") {
  // Against a PNG of the whole: rows and columns that are skipped, and the smoothing of colours at the edges.
  rng random(5);
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    examples::jpeg_kind kind;
    kind.progressive = i % 3 == 0;
    kind.subsampled = i % 2 == 0;
    kind.channels = i % 10 == 9 ? 1 : 3;
    const int width = 40 + static_cast<int>(random.below(200));
    const int height = 40 + static_cast<int>(random.below(200));
    const bytes file = jpeg(width, height, kind);
    image_options o{.height = 24, .width = 20, .crop = crop::random_resized{.scale = {0.02, 0.6}}, .flip = 0.5};
    o.reduced_jpegs = false;
    const bytes same = png(image_decoder(o).whole(file));
    const auto seed = static_cast<std::uint64_t>(i);
    const bool random_same = tensor_of(o, file, seed) == tensor_of(o, same, seed);
    REQUIRE(random_same);
    o.crop = crop::center{.fraction = 0.6};
    const bool middle_same = tensor_of(o, file, seed) == tensor_of(o, same, seed);
    REQUIRE(middle_same);
  }
}

TEST_CASE("a JPEG is decoded at a fraction of its size only where that is enough") {
  const bytes file = jpeg(512, 512);
  image_options o{.height = 64, .width = 64};
  const std::vector<std::uint8_t> reduced = tensor_of(o, file);
  o.reduced_jpegs = false;
  const std::vector<std::uint8_t> full = tensor_of(o, file);
  CHECK(reduced != full);
  double difference = 0;
  for (std::size_t i = 0; i < full.size(); ++i) difference += std::abs(reduced[i] - full[i]);
  CHECK(difference / static_cast<double>(full.size()) < 4);
  o.height = 171;  // 1.5 times it is more than half of the image
  const std::vector<std::uint8_t> at_full = tensor_of(o, file);
  o.reduced_jpegs = true;
  CHECK(tensor_of(o, file) == at_full);
}

TEST_CASE("channels go outermost or innermost, and values become the type that was asked for") {
  const bytes file = png(picture(40, 30, 3).data(), 40, 30);
  image_options o{.height = 30, .width = 40};
  const std::vector<std::uint8_t> hwc = tensor_of(o, file);
  CHECK(hwc == picture(40, 30, 3));
  o.layout = image_layout::chw;
  CHECK(image_decoder(o).dims() == shape{3, 30, 40});
  const std::vector<std::uint8_t> chw = tensor_of(o, file);
  o.mean = {0.485f, 0.456f, 0.406f};
  o.std = {0.229f, 0.224f, 0.225f};
  o.type = dtype::f32;
  const std::vector<float> wide = tensor_of<float>(o, file);
  o.type = dtype::f16;
  const std::vector<std::uint16_t> half = tensor_of<std::uint16_t>(o, file);
  o.type = dtype::bf16;
  const std::vector<std::uint16_t> brain = tensor_of<std::uint16_t>(o, file);
  int wrong = 0;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t p = 0; p < 1200; ++p) {
      const std::size_t at = c * 1200 + p;
      const float expected = (static_cast<float>(hwc[p * 3 + c]) / 255.0f - o.mean[c]) / o.std[c];
      const auto as_half = static_cast<_Float16>(expected);
      std::uint16_t half_bits;
      std::memcpy(&half_bits, &as_half, 2);
      std::uint32_t bits;
      std::memcpy(&bits, &expected, 4);
      const auto brain_error = static_cast<std::int64_t>(bits) - (std::int64_t(brain[at]) << 16);
      wrong +=
          chw[at] != hwc[p * 3 + c] || wide[at] != expected || half[at] != half_bits || std::abs(brain_error) > 0x8000;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("values are those of the formula, of each type and layout, mirrored or not, with every mean and width") {
  rng random(17);
  for (int i = 0; i < 160; ++i) {
    const int width = 1 + static_cast<int>(random.below(40));
    const auto columns = static_cast<std::size_t>(width);
    const bytes file = png(picture(width, 7, 3, random.next()).data(), width, 7);
    const std::vector<std::uint8_t> whole = tensor_of(image_options{.height = 7, .width = width}, file);
    image_options o{.height = 7, .width = width, .flip = i % 2 == 0 ? 0.0 : 1.0};
    o.layout = i % 4 < 2 ? image_layout::chw : image_layout::hwc;
    constexpr dtype types[] = {dtype::f16, dtype::bf16, dtype::f16, dtype::u8};
    o.type = types[i / 4 % 4];
    if (i % 3 != 0 && o.type != dtype::u8) {
      for (std::size_t c = 0; c < 3; ++c) {
        o.mean[c] = static_cast<float>(random.uniform());
        o.std[c] = static_cast<float>(0.1 + random.uniform());
      }
    }
    const auto expected = [&](std::size_t k) -> std::uint16_t {
      const bool planes = o.layout == image_layout::chw;
      const std::size_t c = planes ? k / (columns * 7) : k % 3;
      const std::size_t y = planes ? k / columns % 7 : k / 3 / columns;
      const std::size_t x = planes ? k % columns : k / 3 % columns;
      const std::uint8_t v = whole[(y * columns + (o.flip > 0 ? columns - 1 - x : x)) * 3 + c];
      const float value = (static_cast<float>(v) / 255.0f - o.mean[c]) / o.std[c];
      return o.type == dtype::u8 ? v : o.type == dtype::f16 ? detail::to_f16(value) : detail::to_bf16(value);
    };
    int wrong = 0;
    const auto compare = [&](const auto& got) {
      REQUIRE(got.size() == whole.size());
      for (std::size_t k = 0; k < got.size(); ++k) wrong += got[k] != expected(k);
    };
    if (o.type == dtype::u8) {
      compare(tensor_of(o, file));
    } else {
      compare(tensor_of<std::uint16_t>(o, file));
    }
    CAPTURE(i, width);
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("floats are rounded to 16 bits as the processor does it") {
  rng random(11);
  int wrong = 0;
  for (int i = 0; i < 300000; ++i) {
    auto bits = static_cast<std::uint32_t>(random.next());
    if (i % 3 == 1) bits = (bits & 0x80001fff) | (0x33000000 + (bits >> 8 & 0x7fff) * 0x2000);  // around the smallest
    if (i % 3 == 2) bits = (bits & 0x8fffe000) | 0x30001000;                                    // ties
    float value;
    std::memcpy(&value, &bits, 4);
    if (std::isnan(value)) continue;
    const auto expected = static_cast<_Float16>(value);
    std::uint16_t expected_bits;
    std::memcpy(&expected_bits, &expected, 2);
    wrong += detail::to_f16(value) != expected_bits;
    const std::uint16_t brain = detail::to_bf16(value);
    const std::uint32_t rest = bits & 0xffff;
    const std::uint32_t up = rest > 0x8000 || (rest == 0x8000 && (bits >> 16 & 1) != 0) ? 1 : 0;
    wrong += brain != static_cast<std::uint16_t>((bits >> 16) + up);
  }
  CHECK(wrong == 0);
}

TEST_CASE("colours of four inks become red, green and blue, however they are stored") {
  std::vector<std::uint8_t> inks;
  for (int i = 0; i < 32 * 32; ++i) inks.insert(inks.end(), {10, 100, 200, 50});
  const auto stored = [&](bool ycck, bool adobe) {
    examples::jpeg_kind kind{.quality = 100, .channels = 4, .ycck = ycck, .adobe = adobe};
    return image_decoder({.height = 8, .width = 8}).whole(bytes::copy(examples::encode_jpeg(inks, 32, 32, kind)));
  };
  const auto near = [](const image& i, int r, int g, int b) {
    const std::uint8_t* const p = i.pixels.data() + (16 * 32 + 16) * 3;
    return std::abs(p[0] - r) <= 2 && std::abs(p[1] - g) <= 2 && std::abs(p[2] - b) <= 2;
  };
  CHECK(near(stored(false, true), 10 * 50 / 255, 100 * 50 / 255, 200 * 50 / 255));  // inverted
  CHECK(near(stored(true, true), 10 * 50 / 255, 100 * 50 / 255, 200 * 50 / 255));
  CHECK(near(stored(false, false), 245 * 205 / 255, 155 * 205 / 255, 55 * 205 / 255));
}

TEST_CASE("an orientation counts unless told otherwise") {
  const bytes file = jpeg(60, 40);
  const bytes lying = turned(file, 6);
  image_options o{.height = 8, .width = 8};
  CHECK(image_decoder(o).whole(lying).width == 40);
  o.upright = false;
  CHECK(image_decoder(o).whole(lying).width == 60);
  CHECK(image_decoder(o).whole(lying).pixels == image_decoder(o).whole(file).pixels);
  o.upright = true;
  CHECK(image_decoder(o).whole(turned(file, 9)).width == 60);  // there is no such orientation
}

TEST_CASE("of an animation the first frame counts, where its canvas has it; a cut one is refused") {
  const bytes first = webp(40, 30, true);
  const std::vector<bytes> frames = {first, webp(40, 30, false)};
  const image_options o{.height = 30, .width = 40};
  CHECK(tensor_of(o, animated(frames, 40, 30, 40, 30, 0, 0)) == tensor_of(o, first));

  const bytes larger = animated(frames, 40, 30, 60, 50, 10, 8);
  const image whole = image_decoder(o).whole(larger);
  REQUIRE(whole.width == 60);
  REQUIRE(whole.height == 50);
  const std::vector<std::uint8_t> inner = tensor_of(o, first);
  int wrong = 0;
  for (int y = 0; y < 50; ++y) {
    for (int x = 0; x < 60; ++x) {
      for (int c = 0; c < 3; ++c) {
        const bool inside = x >= 10 && x < 50 && y >= 8 && y < 38;
        const int expected = inside ? inner[static_cast<std::size_t>(((y - 8) * 40 + x - 10) * 3 + c)] : 0;
        wrong += whole.pixels.data()[(y * 60 + x) * 3 + c] != expected;
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(tensor_of({.height = 20, .width = 20, .crop = crop::center{}}, larger).size() == 1200);

  const std::string text(larger.view());
  std::string damaged = text;
  const std::size_t pixels = text.find("VP8L") + 8 + 5;  // after the chunk's head and the size of the frame
  REQUIRE(pixels < text.size());
  std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(pixels), 60, '\xff');
  CHECK(refusal(bytes::copy(damaged)) == "the WebP is corrupt: the first frame of the animation cannot be decoded");
  for (std::size_t length = 12; length < text.size(); ++length) {
    CAPTURE(length);
    REQUIRE_THAT(refusal(bytes::copy(text.substr(0, length))), Catch::Matchers::StartsWith("the WebP"));
  }
}

TEST_CASE("what is no image is refused with a sentence") {
  CHECK(refusal(bytes()) == "not an image: it begins as no JPEG, PNG or WebP does");
  CHECK(refusal(bytes::copy("GIF89a")) == "the image is a GIF: JPEG, PNG and WebP are decoded");
  const auto other = [&](std::string_view data) { return refusal(bytes::copy(data)); };
  CHECK_THAT(other(std::string_view("\0\0\0\x1c"
                                    "ftypavif\0\0\0\0",
                                    16)),
             Contains("an AVIF"));
  CHECK_THAT(other(std::string_view("\0\0\0\x1c"
                                    "ftypheic\0\0\0\0",
                                    16)),
             Contains("a HEIC"));
  CHECK_THAT(other(std::string_view("\0\0\0\x0cJXL \r\n\x87\n", 12)), Contains("a JPEG XL"));
  CHECK_THAT(other("\xff\n"), Contains("a JPEG XL"));
  CHECK_THAT(refusal(bytes::copy("\xff\xd8\xff")), Contains("the JPEG's header cannot be read"));
  CHECK_THAT(refusal(png(picture(9, 9, 3).data(), 9, 9).slice(0, 20)), Contains("the PNG's header cannot be read"));
  CHECK_THAT(refusal(webp(9, 9, true).slice(0, 16)), Contains("the WebP's header cannot be read: it ends early"));
}

TEST_CASE("images that are cut short are refused, wherever that is") {
  for (const bytes& file : {jpeg(64, 64), jpeg(64, 64, {.progressive = true}), png(picture(64, 64, 3).data(), 64, 64),
                            webp(64, 64, false), webp(64, 64, true)}) {
    CAPTURE(static_cast<int>(image_format_of(file.view())));
    CHECK(refusal(file) == "nothing was refused");
    for (std::size_t size = 0; size + 40 < file.size(); size += 1 + file.size() / 150) {
      CAPTURE(size);
      REQUIRE(refusal(file.slice(0, size)) != "nothing was refused");
    }
  }
}

TEST_CASE("images with bytes changed never do worse than be refused") {
  const bytes files[] = {jpeg(48, 48),
                         jpeg(48, 48, {.progressive = true}),
                         turned(jpeg(48, 40), 5),
                         jpeg(40, 40, {.channels = 4}),
                         png(picture(48, 48, 3).data(), 48, 48),
                         webp(48, 48, false),
                         webp(48, 48, true)};
  rng random(9);
  for (const bytes& file : files) {
    int refused = 0;
    for (int i = 0; i < 150; ++i) {
      std::string text(file.view());
      for (int k = 0; k < 4; ++k) text[random.below(text.size())] = static_cast<char>(random.below(256));
      image_options o{.height = 16, .width = 16, .crop = crop::random_resized{}};
      o.max_pixels = 1 << 20;
      o.tolerate_corruption = i % 2 == 0;
      refused += refusal(bytes::copy(text), o) == "nothing was refused" ? 0 : 1;
    }
    CHECK(refused > 0);
  }
}

TEST_CASE("the files of libjpeg-turbo are decoded or refused") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data");
  const std::string path = folder + "/jpeg/libjpeg-turbo/";
  CHECK(refusal(bytes::copy(test::read_file(path + "testorig.jpg"))) == "nothing was refused");
  CHECK_THAT(refusal(bytes::copy(test::read_file(path + "monkey12.jpg"))), Contains("the JPEG"));
}

TEST_CASE("an image with more pixels than allowed is refused before there is memory for them") {
  const std::string sentence = "the image has 65000x65000 pixels, more than are allowed";
  std::string big(jpeg(64, 64).view());
  const std::size_t frame = big.find("\xff\xc0");
  for (const std::size_t at : {frame + 5, frame + 7}) {
    big[at] = static_cast<char>(65000 >> 8);
    big[at + 1] = static_cast<char>(65000 & 255);
  }
  CHECK(refusal(bytes::copy(big)) == sentence);
  image_options o{.height = 8, .width = 8};
  o.max_pixels = 99;
  CHECK(refusal(png(picture(10, 10, 3).data(), 10, 10), o) == "the image has 10x10 pixels, more than are allowed");
  CHECK(refusal(webp(10, 10, true), o) == "the image has 10x10 pixels, more than are allowed");
}

TEST_CASE("a JPEG of ever more scans is refused, even where corruption is tolerated") {
  const std::string file(jpeg(64, 64, {.progressive = true}).view());
  const std::size_t first = file.find("\xff\xda");
  const std::size_t second = file.find("\xff\xc4", first);  // the tables of the next scan
  REQUIRE(second != std::string::npos);
  std::string text = file.substr(0, second);
  for (int i = 0; i < 600; ++i) text += file.substr(first, second - first);
  text += file.substr(second);
  image_options o{.height = 8, .width = 8};
  o.tolerate_corruption = true;
  CHECK_THAT(refusal(bytes::copy(text), o), Contains("more than 500 scans"));
}

TEST_CASE("corrupt data of a JPEG are an error unless they are tolerated") {
  const bytes whole = jpeg(64, 64);
  const bytes cut = whole.slice(0, whole.size() * 2 / 3);
  image_options o{.height = 16, .width = 16};
  CHECK_THAT(refusal(cut, o), Contains("the JPEG is corrupt"));
  o.tolerate_corruption = true;
  CHECK(refusal(cut, o) == "nothing was refused");
}

TEST_CASE("a decoder goes on after an image that failed, on every thread alike") {
  const bytes files[] = {jpeg(90, 70), png(picture(50, 60, 3).data(), 50, 60), webp(61, 47, false)};
  const bytes bad[] = {files[0].slice(0, files[0].size() / 2), files[1].slice(0, files[1].size() / 2),
                       files[2].slice(0, files[2].size() / 2)};
  const image_decoder decode({.height = 20, .width = 24, .crop = crop::random_resized{}, .flip = 0.5});
  const auto tensor = [&decode](const bytes& file, std::uint64_t seed) {
    std::vector<std::uint8_t> pixels(decode.dims().elements());
    rng numbers(seed);
    decode.into(tensor_view(pixels.data(), dtype::u8, decode.dims()), file, numbers);
    return pixels;
  };
  std::vector<std::vector<std::uint8_t>> expected;
  for (std::uint64_t i = 0; i < 60; ++i) expected.push_back(tensor(files[i % 3], i));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& mine : wrong) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 60; ++i) {
        try {
          tensor(bad[i % 3], 0);
          if (i % 3 != 0) ++mine;  // of the JPEG the part that is taken may be whole
        } catch (const decode_error&) {
        }
        if (tensor(files[i % 3], i) != expected[i]) ++mine;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("options and places that cannot be meant are refused") {
  const auto make = [](const image_options& o) { return image_decoder(o); };
  CHECK_THROWS_WITH(make({.width = 8}), Contains(".height and .width"));
  CHECK_THROWS_WITH(make({.height = 8, .width = 8, .flip = 1.5}), Contains(".flip"));
  CHECK_THROWS_WITH(make({.height = 8, .width = 8, .type = dtype::i64}), Contains("not i64"));
  CHECK_THROWS_WITH(make({.height = 8, .width = 8, .mean = {0.5f, 0, 0}}), Contains("mean and std"));
  CHECK_THROWS_WITH(make({.height = 8, .width = 8, .type = dtype::f32, .std = {1, 0, 1}}), Contains("std"));
  CHECK_THROWS_AS(image_crop(crop::center{.fraction = 0}), configuration_error);
  CHECK_THROWS_AS(image_crop(crop::random_resized{.scale = {0.5, 0.4}}), configuration_error);
  CHECK_THROWS_AS(image_crop(crop::random_resized{.ratio = {0, 1}}), configuration_error);
  std::vector<std::uint8_t> memory(8 * 8 * 3);
  rng numbers(0);
  const image_decoder decode({.height = 8, .width = 8});
  CHECK_THROWS_WITH(decode.into(tensor_view(memory.data(), dtype::u8, shape{3, 8, 8}), jpeg(9, 9), numbers),
                    Contains("images become u8 8x8x3, and the place for one is u8 3x8x8"));
}
