// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/image_decoder.hpp>

#include <spng.h>
#include <webp/encode.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/crc.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/test_data.hpp"

// Images that contradict their formats in some small way. What is right is what Pillow 13 makes of them
// (ImageOps.exif_transpose for how they are turned), unless a comment says otherwise.

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

constexpr int columns = 40, rows = 24;

/// Bytes with zeros among them, of a literal.
template <std::size_t N>
std::string raw(const char (&text)[N]) {
  return std::string(text, N - 1);
}

/// The low `size` bytes of a number.
std::string number(std::uint64_t value, std::size_t size, bool little = false) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(value >> 8 * (little ? i : size - 1 - i));
  return text;
}

std::vector<unsigned char> ramp(int channels = 3) {
  std::vector<unsigned char> pixels;
  for (int i = 0; i < columns * rows * channels; ++i) pixels.push_back(static_cast<unsigned char>(i * 7 / channels));
  return pixels;
}

image whole(const std::string& file) { return image_decoder({.height = 8, .width = 8}).whole(bytes::copy(file)); }

std::string refusal(const std::string& file) {
  try {
    whole(file);
  } catch (const decode_error& e) {
    return e.reason();
  }
  return "nothing was refused";
}

/// "turned", "as stored" or why it is refused.
std::string turn(const std::string& file) {
  try {
    const image i = whole(file);
    return i.width == rows && i.height == columns ? "turned" : "as stored";
  } catch (const decode_error& e) {
    return e.reason();
  }
}

// EXIF: a TIFF file of one directory.

struct tiff_kind {
  bool little = true;
  std::uint64_t count = 1;
  std::size_t directory = 8;  ///< where it begins
};

/// One entry, tag 0x0112, of which `value` is stored as it is given.
std::string tiff(int type, const std::string& value, tiff_kind k = {}) {
  std::string text = k.little ? "II" : "MM";
  text += number(42, 2, k.little) + number(k.directory, 4, k.little);
  text.resize(k.directory);
  text += number(1, 2, k.little) + number(0x0112, 2, k.little);
  text += number(static_cast<std::uint64_t>(type), 2, k.little) + number(k.count, 4, k.little);
  std::string in_place = value;
  if (value.size() > 4) in_place = number(text.size() + 8, 4, k.little);
  in_place.resize(4);
  text += in_place + number(0, 4, k.little);
  return value.size() > 4 ? text + value : text;
}
std::string turned_tiff(std::uint64_t orientation = 6) { return tiff(3, number(orientation, 2, true)); }

const std::string exif_prefix = raw("Exif\0\0");

// JPEG

std::string jpeg(examples::jpeg_kind kind = {}) {
  return examples::encode_jpeg(ramp(kind.channels), columns, rows, kind);
}

std::string segment(const std::string& body, char marker = '\xe1') {
  return std::string("\xff") + marker + number(body.size() + 2, 2) + body;
}

std::string with_segments(const std::string& segments) {
  std::string file = jpeg();
  return file.insert(2, segments);
}

std::string xmp(const std::string& stated) {
  return "<x:xmpmeta><rdf:Description xmlns:tiff=\"http://ns.adobe.com/tiff/1.0/\" " + stated + "</x:xmpmeta>";
}
std::string xmp_segment(const std::string& stated) {
  return segment(raw("http://ns.adobe.com/xap/1.0/\0") + xmp(stated));
}
const std::string xmp_says_6 = "tiff:Orientation=\"6\"/>";

// PNG

std::string chunk(const std::string& name, const std::string& body) {
  const std::string covered = name + body;
  return number(body.size(), 4) + covered + number(crc32(0, covered.data(), covered.size()), 4);
}

struct png_kind {
  int type = SPNG_COLOR_TYPE_TRUECOLOR;
  int depth = 8;
  bool interlaced = false;
};

std::string png(png_kind k = {}) {
  spng_ctx* const state = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(state, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr head = {};
  head.width = columns;
  head.height = rows;
  head.bit_depth = static_cast<std::uint8_t>(k.depth);
  head.color_type = static_cast<std::uint8_t>(k.type);
  spng_set_ihdr(state, &head);
  if (k.type == SPNG_COLOR_TYPE_INDEXED) {
    spng_plte palette = {};
    palette.n_entries = 256;
    for (std::uint32_t i = 0; i < 256; ++i) palette.entries[i].red = static_cast<std::uint8_t>(i);
    spng_set_plte(state, &palette);
  }
  std::vector<unsigned char> pixels = ramp(k.type == SPNG_COLOR_TYPE_TRUECOLOR ? 3 : 1);
  const std::size_t size = pixels.size() * static_cast<std::size_t>(k.depth) / 8;
  pixels.resize(pixels.size() * 2);  // for 16 bits
  REQUIRE(spng_encode_image(state, pixels.data(), size, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE) == 0);
  std::size_t length = 0;
  int error = 0;
  void* const data = spng_get_png_buffer(state, &length, &error);
  std::string out(static_cast<const char*>(data), length);
  std::free(data);
  spng_ctx_free(state);
  return out;
}

constexpr std::size_t after_header = 33;
std::string with_chunks(const std::string& before, const std::string& after = std::string()) {
  std::string file = png();
  file.insert(file.size() - 12, after);
  return file.insert(after_header, before);
}

/// As ImageMagick writes a profile: what it is, its size, and hexadecimal digits in lines.
std::string hexadecimal(const std::string& data, const char* digits = "0123456789abcdef") {
  std::string text = "\nexif\n      " + std::to_string(data.size()) + "\n";
  for (std::size_t i = 0; i < data.size(); ++i) {
    text += digits[static_cast<unsigned char>(data[i]) >> 4];
    text += digits[static_cast<unsigned char>(data[i]) & 15];
    if (i % 36 == 35) text += '\n';
  }
  return text + "\n";
}

/// As a zlib stream that is not compressed.
std::string stored(const std::string& text) {
  REQUIRE(text.size() < 65536);
  std::uint32_t a = 1, b = 0;
  for (const char c : text) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return raw("\x78\x01\x01") + number(text.size(), 2, true) + number(~text.size(), 2, true) + text +
         number(b << 16 | a, 4);
}

// WebP

std::string webp(const std::string& name, const std::string& body) {
  const std::vector<unsigned char> pixels = ramp();
  std::uint8_t* data = nullptr;
  const std::size_t size = WebPEncodeLosslessRGB(pixels.data(), columns, rows, columns * 3, &data);
  const std::string image(reinterpret_cast<const char*>(data) + 12, size - 12);
  WebPFree(data);
  const char flags = name == "EXIF" ? 8 : 4;
  std::string text = "WEBPVP8X" + number(10, 4, true) + flags + number(0, 3) + number(columns - 1, 3, true) +
                     number(rows - 1, 3, true) + image + name + number(body.size(), 4, true) + body;
  if (body.size() % 2 != 0) text += '\0';
  return "RIFF" + number(text.size(), 4, true) + text;
}

std::string odd_file(const char* name) {
  const std::string folder = test::test_data_folder();
  return folder.empty() ? folder : test::read_file(folder + "/odd/" + name);
}

}  // namespace

TEST_CASE("EXIF orientations of every numeric type turn an image, in both byte orders") {
  for (const bool little : {true, false}) {
    CAPTURE(little);
    const auto exif = [little](int type, const std::string& value, std::uint64_t count = 1, std::size_t at = 8) {
      return turn(with_segments(segment(exif_prefix + tiff(type, value, {little, count, at}))));
    };
    const auto n = [little](std::uint64_t value, std::size_t size) { return number(value, size, little); };
    CHECK(exif(3, n(6, 2)) == "turned");                             // SHORT, as the standard has it
    CHECK(exif(4, n(6, 4)) == "turned");                             // LONG
    CHECK(exif(5, n(6, 4) + n(1, 4)) == "turned");                   // RATIONAL
    CHECK(exif(5, n(12, 4) + n(2, 4)) == "turned");
    CHECK(exif(5, n(6, 4) + n(0, 4)) == "as stored");
    CHECK(exif(6, n(6, 1)) == "turned");                             // SBYTE
    CHECK(exif(8, n(6, 2)) == "turned");                             // SSHORT
    CHECK(exif(9, n(6, 4)) == "turned");                             // SLONG
    CHECK(exif(10, n(6, 4) + n(1, 4)) == "turned");                  // SRATIONAL
    CHECK(exif(11, n(0x40c00000, 4)) == "turned");                   // FLOAT
    CHECK(exif(12, n(0x4018000000000000, 8)) == "turned");           // DOUBLE
    CHECK(exif(12, n(0x401a000000000000, 8)) == "as stored");        // 6.5
    CHECK(exif(13, n(6, 4)) == "turned");                            // IFD
    CHECK(exif(16, n(6, 8)) == "turned");                            // LONG8
    CHECK(exif(1, n(6, 1)) == "as stored");                          // BYTE: bytes, to Pillow
    CHECK(exif(2, raw("6\0")) == "as stored");                       // ASCII
    CHECK(exif(7, n(6, 1)) == "as stored");                          // UNDEFINED
    CHECK(exif(99, n(6, 2)) == "as stored");
    CHECK(exif(3, n(6, 2), 0) == "as stored");
    CHECK(exif(3, n(6, 2) + n(1, 2), 2) == "turned");                // the first of several
    CHECK(exif(3, n(6, 2) + n(1, 2) + n(1, 2), 3) == "turned");
    CHECK(exif(4, n(6, 4) + n(1, 4), 2) == "turned");
    CHECK(exif(3, n(6, 2), 1, 9) == "turned");
    CHECK(exif(4, n(6, 4), 1, 31) == "turned");
    for (const std::uint64_t none : {0u, 9u, 65542u, 0xffffffffu}) CHECK(exif(4, n(none, 4)) == "as stored");
    CHECK(exif(3, n(0xfffa, 2)) == "as stored");
  }
}

TEST_CASE("EXIF is found where it stands in a JPEG, in pieces and among other segments") {
  const std::string six = segment(exif_prefix + turned_tiff());
  const std::string one = segment(exif_prefix + turned_tiff(1));
  CHECK(turn(with_segments(xmp_segment("/>") + six)) == "turned");
  CHECK(turn(with_segments(segment(std::string(60000, 'x'), '\xe2') + six)) == "turned");
  CHECK(turn(with_segments(segment("Exif") + segment("") + six)) == "turned");
  CHECK(turn(with_segments(six + one)) == "turned");
  CHECK(turn(with_segments(one + six)) == "as stored");
  CHECK(turn(with_segments(segment(exif_prefix) + six)) == "turned");
  const std::string all = turned_tiff();
  for (std::size_t i = 1; i < all.size(); ++i) {
    CAPTURE(i);
    CHECK(turn(with_segments(segment(exif_prefix + all.substr(0, i)) + segment(exif_prefix + all.substr(i)))) ==
          "turned");
  }
  CHECK(turn(with_segments(segment(exif_prefix + exif_prefix + all))) == "turned");
  CHECK(turn(with_segments(segment(raw("Exif\0\xff") + all))) == "as stored");
  std::string late = jpeg();
  late.insert(late.find("\xff\xda"), six);
  CHECK(turn(late) == "turned");
  std::string swapped = all;  // 42 in the other byte order
  std::swap(swapped[2], swapped[3]);
  CHECK(turn(with_segments(segment(exif_prefix + swapped))) == "turned");
  for (std::size_t i = 0; i + 4 < all.size(); ++i) {  // damaged: no word of it
    CHECK(turn(with_segments(segment(exif_prefix + all.substr(0, i)))) == "as stored");
  }
  std::string beyond = all;
  beyond.replace(4, 4, "\xff\xff\xff\xff");
  CHECK(turn(with_segments(segment(exif_prefix + beyond))) == "as stored");
}

TEST_CASE("XMP turns an image where EXIF says nothing of it") {
  CHECK(turn(with_segments(xmp_segment(xmp_says_6))) == "turned");
  CHECK(turn(with_segments(xmp_segment("><tiff:Orientation>6</tiff:Orientation>"))) == "turned");
  CHECK(turn(with_segments(xmp_segment("tiff:Orientation='6'/>"))) == "as stored");
  CHECK(turn(with_segments(xmp_segment("tiff:Orientation=\"9\"/>"))) == "as stored");
  CHECK(turn(with_segments(xmp_segment("tiff:Orientation"))) == "as stored");
  CHECK(turn(with_segments(xmp_segment(xmp_says_6) + segment(exif_prefix + turned_tiff(1)))) == "as stored");
  const std::string without = raw("II*\0\x08\0\0\0\0\0\0\0\0\0");  // a directory of no entries
  CHECK(turn(with_segments(xmp_segment(xmp_says_6) + segment(exif_prefix + without))) == "turned");
}

TEST_CASE("EXIF of a PNG turns it, with the JPEG's prefix or without, wherever it stands") {
  const std::string six = turned_tiff();
  const std::string one = turned_tiff(1);
  CHECK(turn(with_chunks(chunk("eXIf", six))) == "turned");
  CHECK(turn(with_chunks(chunk("eXIf", exif_prefix + six))) == "turned");
  CHECK(turn(with_chunks("", chunk("eXIf", six))) == "turned");
  CHECK(turn(with_chunks("", chunk("eXIf", exif_prefix + six))) == "turned");
  CHECK(turn(with_chunks(chunk("eXIf", six) + chunk("eXIf", one))) == "as stored");  // the last one counts
  CHECK(turn(with_chunks(chunk("eXIf", one) + chunk("eXIf", six))) == "turned");
  CHECK(turn(with_chunks(chunk("eXIf", six), chunk("eXIf", one))) == "as stored");
  CHECK(turn(with_chunks(chunk("eXIf", ""))) == "as stored");
  CHECK(turn(with_chunks(chunk("eXIf", exif_prefix))) == "as stored");
  CHECK(turn(with_chunks(chunk("eXIf", "hello world"))) == "as stored");
  std::string damaged = chunk("eXIf", six);
  damaged.back() = static_cast<char>(damaged.back() + 1);
  CHECK(turn(with_chunks(damaged)) ==
        "the PNG's header cannot be read: the chunk eXIf at byte 33 has a wrong checksum");  // Pillow refuses it, too

  for (const std::string& text : {hexadecimal(exif_prefix + six), hexadecimal(six, "0123456789ABCDEF")}) {
    const std::string key = "Raw profile type exif";  // ImageMagick's
    CHECK(turn(with_chunks(chunk("tEXt", key + '\0' + text))) == "turned");
    CHECK(turn(with_chunks(chunk("zTXt", key + raw("\0\0") + stored(text)))) == "turned");
    CHECK(turn(with_chunks(chunk("iTXt", key + raw("\0\0\0\0\0") + text))) == "turned");
    CHECK(turn(with_chunks(chunk("iTXt", key + raw("\0\1\0\0\0") + stored(text)))) == "turned");
    CHECK(turn(with_chunks("", chunk("zTXt", key + raw("\0\0") + stored(text)))) == "turned");
    CHECK(turn(with_chunks(chunk("eXIf", one) + chunk("tEXt", key + '\0' + text))) == "as stored");
    CHECK(turn(with_chunks(chunk("tEXt", "Raw profile type APP1" + raw("\0") + text))) == "as stored");
    CHECK(turn(with_chunks(chunk("zTXt", key + raw("\0\0") + "no stream"))) == "as stored");
  }
  const std::string key = "XML:com.adobe.xmp";
  CHECK(turn(with_chunks(chunk("iTXt", key + raw("\0\0\0\0\0") + xmp(xmp_says_6)))) == "turned");
  CHECK(turn(with_chunks(chunk("iTXt", key + raw("\0\1\0\0\0") + stored(xmp(xmp_says_6))))) == "turned");
  CHECK(turn(with_chunks("", chunk("iTXt", key + raw("\0\0\0\0\0") + xmp(xmp_says_6)))) == "turned");
  CHECK(turn(with_chunks(chunk("eXIf", one) + chunk("iTXt", key + raw("\0\0\0\0\0") + xmp(xmp_says_6)))) ==
        "as stored");
}

TEST_CASE("EXIF and XMP of a WebP turn it") {
  CHECK(turn(webp("EXIF", turned_tiff())) == "turned");
  CHECK(turn(webp("EXIF", exif_prefix + turned_tiff())) == "turned");
  CHECK(turn(webp("EXIF", tiff(4, number(6, 4, true)))) == "turned");
  CHECK(turn(webp("EXIF", turned_tiff() + "x")) == "turned");
  CHECK(turn(webp("XMP ", xmp(xmp_says_6))) == "turned");
  CHECK(turn(webp("EXIF", turned_tiff(1))) == "as stored");
}

TEST_CASE("JPEGs whose faults cost no pixel are taken, counted, and said once for each kind") {
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const image_decoder decode({.height = 8, .width = 8});
  const auto sound = [&](const examples::jpeg_kind& kind) { return whole(jpeg(kind)).pixels; };
  std::uint64_t odd = 0;
  const auto taken = [&](const std::string& file, const examples::jpeg_kind& kind = {}) {
    const image made = decode.whole(bytes::copy(file), where{"s3://b/a.tar", 512, "k"});
    CHECK(made.pixels == sound(kind));
    CHECK(decode.odd_images() == ++odd);
  };
  const std::string plain = jpeg();
  std::string file = plain;
  taken(file.insert(file.size() - 2, "xyz"));  // before EOI
  file = plain;
  taken(file.insert(file.find("\xff\xdb"), "abc"));  // before a table
  file = plain;
  file[file.find("JFIF") + 5] = 2;  // the revision's first number
  taken(file);
  file = plain;
  file[file.find("\xff\xda") + 12] = 0;  // Se of a sequential JPEG
  taken(file);
  file = plain;
  // Adobe's code 5 in place of 1, beside no JFIF: YCbCr is the default, as in Pillow.
  file.erase(2, 18);
  taken(file.insert(2, segment(raw("Adobe\0\x64\0\0\0\0\x05"), '\xee')));

  const std::string progressive = jpeg({.progressive = true});
  const std::size_t first = progressive.find("\xff\xda");
  const std::size_t tables = progressive.rfind("\xff\xc4", first);
  const std::size_t second = progressive.find("\xff\xc4", first);
  file = progressive;  // the first scan twice: its coefficients are sent from their first bit on
  taken(file.insert(second, progressive.substr(tables, second - tables)), {.progressive = true});

  const std::string log = said.text();
  CHECK_THAT(log, Contains("millrace: s3://b/a.tar at byte 512, k: Corrupt JPEG data: 2 extraneous bytes before "
                           "marker 0xd9 (no pixel is lost: taken, as are all others like it)\n"));
  CHECK_THAT(log, Contains("unknown JFIF revision number 2.01"));
  CHECK_THAT(log, Contains("Unknown Adobe color transform code 5"));
  CHECK(log.find("extraneous") == log.rfind("extraneous"));

  const image_decoder other({.height = 8, .width = 8});
  other.whole(bytes::copy(plain));
  CHECK(other.odd_images() == 0);
  file = plain;
  other.whole(bytes::copy(file.insert(file.size() - 2, "abc")));
  CHECK(other.odd_images() == 1);
  decode.whole(bytes::copy(plain));
  CHECK(decode.odd_images() == odd);
}

TEST_CASE("JPEGs that lost pixels are refused still, and tolerated where that is wanted") {
  const std::string plain = jpeg();
  const std::size_t scan = plain.find("\xff\xda") + 14;
  std::vector<std::string> lost;
  lost.push_back(plain.substr(0, plain.size() - 2));  // Pillow refuses what has no EOI, too
  lost.push_back(plain.substr(0, scan + 40) + "\xff\xd9");
  lost.push_back(plain.substr(0, scan + 40));
  std::string ones;  // which are no Huffman code
  for (int i = 0; i < 30; ++i) ones += raw("\xff\0");
  lost.push_back(plain.substr(0, scan) + ones + plain.substr(scan + ones.size()));
  const std::string restarting = jpeg({.restart_rows = 1});
  const std::size_t marker = restarting.find("\xff\xd0");
  REQUIRE(marker != std::string::npos);
  std::string file = restarting;
  file[marker + 1] = '\xd3';
  lost.push_back(file);  // RST3 in place of RST0
  const std::string progressive = jpeg({.progressive = true});
  std::size_t at = progressive.find("\xff\xda");
  const std::size_t second = progressive.find("\xff\xc4", at);
  lost.push_back(progressive.substr(0, progressive.rfind("\xff\xc4", at)) + progressive.substr(second));  // no means
  for (std::size_t i = 0; i < lost.size(); ++i) {
    CAPTURE(i);
    const std::string& each = lost[i];
    CHECK_THAT(refusal(each), Contains("the JPEG is corrupt"));
    const image_decoder tolerant({.height = 8, .width = 8, .tolerate_corruption = true});
    CHECK(tolerant.whole(bytes::copy(each)).width == columns);
    CHECK(tolerant.odd_images() <= 1);
  }
  // Bytes before RST: no block needed them.
  file = restarting;
  CHECK(whole(file.insert(marker, raw("\1\2\3"))).pixels == whole(restarting).pixels);
  // What follows EOI is not the image's.
  CHECK(whole(plain + "and more").pixels == whole(plain).pixels);
}

TEST_CASE("what stands beside a PNG's pixels is none of theirs, however much there is and however broken") {
  const std::string sound = png();
  const auto pixels = whole(sound).pixels;
  const auto same = [&](const std::string& before) { return whole(with_chunks(before)).pixels == pixels; };
  CHECK(same(chunk("eXIf", "")));
  std::string many;
  for (int i = 0; i < 3000; ++i) many += chunk("tEXt", "Comment" + raw("\0") + std::to_string(i));
  CHECK(same(many));
  CHECK(same(chunk("zTXt", "Comment" + raw("\0\0") + std::string(100'000'000, 'z'))));
  CHECK(same(chunk("iTXt", "Comment")));
  CHECK(same(chunk("tEXt", "")));
  CHECK(same(chunk("tEXt", std::string(100, 'k') + raw("\0"))));
  CHECK(same(chunk("iCCP", "x")));
  CHECK(same(chunk("iCCP", "icc" + raw("\0\0") + "broken")));
  CHECK(same(chunk("gAMA", "x") + chunk("gAMA", number(0, 4)) + chunk("gAMA", number(0, 4))));
  CHECK(same(chunk("cHRM", "")));
  CHECK(same(chunk("tIME", std::string(7, '\xff'))));
  CHECK(same(chunk("pHYs", "")));
  CHECK(same(chunk("bKGD", "")));
  CHECK(same(chunk("hIST", "ab")));
  CHECK(same(chunk("sPLT", "ab")));
  CHECK(same(chunk("sBIT", std::string(3, '\0'))));
  CHECK(same(chunk("tRNS", "x")));           // transparent colours are left out
  CHECK(same(chunk("PLTE", "xyzxyz")));      // a suggestion
  CHECK(same(chunk("PLTE", "x")));
  CHECK(same(chunk("acTL", std::string(8, '\0')) + chunk("fcTL", std::string(26, '\0'))));  // the default image counts
  CHECK(same(chunk("prVt", "anything")));
  std::string damaged = chunk("tEXt", "Comment" + raw("\0") + "text");
  damaged.back() = static_cast<char>(damaged.back() + 1);
  CHECK(same(damaged));
  CHECK(whole(with_chunks("", chunk("tEXt", "") + chunk("zTXt", "") + "rubbish")).pixels == pixels);
  // Palettes with more colours than there can be, and with a part of one (Pillow; libspng refuses both).
  const std::string few = png({.type = SPNG_COLOR_TYPE_INDEXED});
  const std::string colours_of_few = few.substr(few.find("PLTE") + 4, 768);
  for (const char* more : {"x", "xy", "xyz", "xyzxyzx"}) {
    std::string odd = few;
    odd.replace(few.find("PLTE") - 4, 780, chunk("PLTE", colours_of_few + more));
    CHECK(whole(odd).pixels == whole(few).pixels);
  }
  // Grey images of every depth, and palettes.
  for (const int depth : {1, 2, 4, 8, 16}) {
    CHECK(whole(png({.type = SPNG_COLOR_TYPE_GRAYSCALE, .depth = depth}).insert(after_header, many)).width == columns);
  }
  std::string indexed = png({.type = SPNG_COLOR_TYPE_INDEXED});
  const auto colours = whole(indexed).pixels;
  indexed.insert(after_header, chunk("tEXt", ""));
  indexed.insert(indexed.find("IDAT") - 4, chunk("tRNS", std::string(300, '\1')) + chunk("bKGD", "abc"));
  CHECK(whole(indexed).pixels == colours);
}

TEST_CASE("each fault of a PNG before its pixels has a sentence of its own") {
  const std::string start = "the PNG's header cannot be read: ";
  const std::string sound = png();
  const auto with = [&](const std::string& before) { return refusal(with_chunks(before)); };
  CHECK(with(chunk("ABCD", "xyz")) == start + "the chunk ABCD at byte 33 is critical by its name and not one of PNG's: "
                                              "the image cannot be read without it");  // Pillow passes over it
  CHECK(with(raw("\0\0\0\1a?cd")) == start + "at byte 33, after the chunk IHDR, no chunk begins");
  CHECK(with(raw("\xff\xff\xff\xfftEXt")) ==
        start + "the chunk tEXt at byte 33 says that it has 4294967295 bytes, more than any may");
  CHECK(with(raw("\x7f\xff\xff\xfftEXt")) == start + "it ends early, inside the chunk tEXt at byte 33");
  CHECK(with(chunk("IEND", "")) == start + "it has no image data: the chunk IEND at byte 33 is its end");
  CHECK(refusal(sound.substr(0, after_header)) == start + "it ends early, after the chunk IHDR");
  CHECK(refusal(sound.substr(0, 15)) == start + "it ends early");
  std::string file = sound;
  file[29] = static_cast<char>(file[29] + 1);
  CHECK(refusal(file) == start + "the chunk IHDR at byte 8 has a wrong checksum");
  file = sound.substr(0, 8) + chunk("CgBI", "xxxx") + sound.substr(8);  // Apple's
  CHECK(refusal(file) == start + "it begins with the chunk CgBI at byte 8 in place of a header");

  const std::string indexed = png({.type = SPNG_COLOR_TYPE_INDEXED});
  const std::size_t palette = indexed.find("PLTE") - 4;
  file = indexed;
  file[palette + 8] = 9;
  CHECK(refusal(file) == start + "the chunk PLTE at byte 33 has a wrong checksum");
  file = indexed;
  file.erase(palette, 12 + 768);
  CHECK(refusal(file) == start + "its colours are numbers of a palette, and it has none");
  file = indexed;
  file.insert(palette, indexed.substr(palette, 12 + 768));
  CHECK(refusal(file) == start + "the chunk PLTE at byte 813 is the second palette");
  file.erase(palette, 2 * (12 + 768));
  CHECK_THAT(refusal(file.insert(palette, chunk("PLTE", "xy"))), Contains("the PNG is corrupt: invalid chunk length"));
  CHECK(with(sound.substr(8, 25)) == start + "the chunk IHDR at byte 33 is the second header");
  file = sound.substr(0, 8) + chunk("IHDR", sound.substr(16, 13) + "x") + sound.substr(after_header);
  CHECK(refusal(file) == start + "the chunk IHDR at byte 8 has 14 bytes, not 13");

  const auto header = [&](std::size_t at, char value) {
    std::string body = sound.substr(16, 13);
    body[at] = value;
    return refusal(sound.substr(0, 8) + chunk("IHDR", body) + sound.substr(after_header));
  };
  CHECK_THAT(header(8, 3), Contains("invalid bit depth"));
  CHECK_THAT(header(9, 5), Contains("invalid color type"));
  CHECK_THAT(header(10, 1), Contains("invalid compression method"));
  CHECK_THAT(header(12, 2), Contains("invalid interlace method"));
  CHECK_THAT(header(3, 0), Contains("invalid image width"));
  file = sound;
  file[file.find("IDAT") + 10] ^= 0x55;
  CHECK_THAT(refusal(file), Contains("the PNG is corrupt"));
}

TEST_CASE("the odd images that were reported are what Pillow makes of them") {
  if (test::test_data_folder().empty()) MILLRACE_SKIP("no test data");
  const test::captured_stderr said(test::captured_stderr::into::pipe);
  const auto size = [](const char* name) {
    const image i = whole(odd_file(name));
    return std::to_string(i.width) + "x" + std::to_string(i.height);
  };
  CHECK(size("adobe_code_5.jpg") == "40x24");
  CHECK(size("jfif_revision_2_1.jpg") == "64x48");
  CHECK(size("bytes_before_rst.jpg") == "64x48");
  CHECK(size("orientation_as_long.jpg") == "24x40");
  CHECK(size("prefixed_exif.png") == "24x40");
  CHECK(size("empty_exif.png") == "40x24");
}
