// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/image_source.hpp>
#include <millrace/decode/detail/png_source.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE int png_source::pieces::read(spng_ctx*, void* self, void* to, std::size_t size) noexcept {
  auto* out = static_cast<char*>(to);
  for (std::string_view& piece : static_cast<pieces*>(self)->left) {
    const std::size_t n = piece.size() < size ? piece.size() : size;
    if (n != 0) std::memcpy(out, piece.data(), n);
    out += n;
    size -= n;
    piece.remove_prefix(n);
  }
  return size == 0 ? 0 : SPNG_IO_EOF;
}

MILLRACE_INLINE std::uint32_t png_source::number(std::string_view text, std::size_t at) noexcept {
  std::uint32_t value = 0;
  for (const char c : text.substr(at, 4)) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

MILLRACE_INLINE void png_source::chunk::check_sum() const {
  const std::size_t covered = all.size() - 8;
  if (crc32(0, all.data() + 4, covered) != number(all, all.size() - 4)) {
    refuse(named(*this) + " has a wrong checksum");
  }
}

MILLRACE_INLINE png_source::chunk png_source::chunk_at(std::string_view file, std::size_t at, std::string_view before) {
  chunk c;
  c.at = at;
  c.all = file.substr(at);
  const std::string after = before.empty() ? std::string() : ", after the chunk " + std::string(before);
  if (c.all.size() < 12) refuse("it ends early" + after);
  for (const char letter : c.name()) {
    if ((letter < 'A' || letter > 'Z') && (letter < 'a' || letter > 'z')) {
      refuse("at byte " + std::to_string(at) + after + ", no chunk begins");
    }
  }
  const std::size_t size = number(c.all, 0);
  if (size > 0x7fffffff) refuse(named(c) + " says that it has " + std::to_string(size) + " bytes, more than any may");
  if (size <= c.all.size() - 12) {
    c.all = c.all.substr(0, size + 12);
  } else if (c.name() != "IDAT") {  // of which the rows that are there may be wanted alone
    refuse("it ends early, inside " + named(c));
  }
  return c;
}

MILLRACE_INLINE void png_source::select(std::string_view file) {
  constexpr std::size_t signature = 8;
  chunk c = chunk_at(file, signature, std::string_view());
  if (c.name() != "IHDR") refuse("it begins with " + named(c) + " in place of a header");
  if (c.body().size() != 13) refuse(named(c) + " has " + std::to_string(c.body().size()) + " bytes, not 13");
  c.check_sum();
  const bool indexed = c.body()[9] == 3;
  stream_.left[0] = file.substr(0, signature + c.all.size());
  stream_.left[1] = std::string_view();
  while (c.name() != "IDAT") {
    c = chunk_at(file, c.at + c.all.size(), c.name());
    if (c.name() == "PLTE") {
      c.check_sum();
      if (!indexed) continue;  // a suggestion for displays of few colours
      if (!stream_.left[1].empty()) refuse(named(c) + " is the second palette");
      take_palette(c.body(), file[signature + 16]);
    } else if (c.name() == "IHDR") {
      refuse(named(c) + " is the second header");
    } else if (c.name() == "IEND") {
      refuse("it has no image data: " + named(c) + " is its end");
    } else if (c.name() != "IDAT" && c.name()[0] <= 'Z') {
      refuse(named(c) + " is critical by its name and not one of PNG's: the image cannot be read without it");
    }
    keep(c);
  }
  if (indexed && stream_.left[1].empty()) refuse("its colours are numbers of a palette, and it has none");
  stream_.left[2] = file.substr(c.at);
  // Chunks after the pixels are read for the orientation alone: their faults do not count.
  for (std::size_t at = c.at + c.all.size(); at + 12 <= file.size(); at += c.all.size()) {
    const std::size_t size = number(file, at);
    if (size > file.size() - at - 12) break;
    c.at = at;
    c.all = file.substr(at, size + 12);
    keep(c);
  }
}

MILLRACE_INLINE void png_source::take_palette(std::string_view colours, int depth) {
  const std::size_t most = depth >= 8 ? 256 : std::size_t(1) << depth;
  const std::size_t size = std::min(colours.size() / 3, most) * 3;
  const auto put = [this](std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) palette_ += static_cast<char>(value >> shift & 0xff);
  };
  palette_.clear();
  put(static_cast<std::uint32_t>(size));
  palette_ += "PLTE";
  palette_ += colours.substr(0, size);
  put(crc32(0, palette_.data() + 4, palette_.size() - 4));
  stream_.left[1] = palette_;
}

MILLRACE_INLINE void png_source::keep(const chunk& c) {
  const std::string_view name = c.name();
  if (name == "eXIf") exif_ = c;
  if (name != "tEXt" && name != "zTXt" && name != "iTXt") return;
  if (c.body().starts_with(std::string_view("Raw profile type exif\0", 22))) profile_ = c;
  if (c.body().starts_with(std::string_view("XML:com.adobe.xmp\0", 18))) xmp_ = c;
}

MILLRACE_INLINE std::string png_source::text_of(const chunk& c) {
  // libspng unpacks texts before the data of an image: here of one pixel, none of which is read.
  static constexpr char head[] =
      "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\x3a\x7e\x9b\x55";
  static constexpr char data[] = "\0\0\0\0IDAT";
  struct freed {
    void operator()(spng_ctx* s) const noexcept { spng_ctx_free(s); }
  };
  const std::unique_ptr<spng_ctx, freed> state(spng_ctx_new(0));
  if (state == nullptr) throw std::bad_alloc();
  pieces stream;
  stream.left[0] = std::string_view(head, sizeof head - 1);
  stream.left[1] = c.all;
  stream.left[2] = std::string_view(data, sizeof data - 1);
  spng_text text;
  std::uint32_t count = 1;
  constexpr std::size_t most = 1 << 26;  // packed, and unpacked
  if (spng_set_chunk_limits(state.get(), most, most) != 0 ||
      spng_set_png_stream(state.get(), &pieces::read, &stream) != 0 || spng_get_text(state.get(), &text, &count) != 0) {
    return std::string();
  }
  return std::string(text.text, text.length);
}

/// The orientation as Pillow has it: eXIf, else the profile that ImageMagick writes in hexadecimal digits; and XMP if
/// neither has one.
MILLRACE_INLINE int png_source::stated_orientation() const {
  int stated = 0;
  if (!exif_.all.empty()) {
    exif_.check_sum();
    stated = exif_orientation(exif_.body());
  } else if (!profile_.all.empty()) {
    profile_.check_sum();
    // "\nexif\n    1234\n" and the digits, in lines.
    const std::string text = text_of(profile_);
    std::size_t at = 0;
    for (int line = 0; line < 3 && at != std::string::npos; ++line) at = text.find('\n', line == 0 ? 0 : at + 1);
    std::string exif;
    int digits = 0;
    unsigned byte = 0;
    for (; at < text.size(); ++at) {
      const char c = text[at];
      const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
      if (digit < 0) continue;
      byte = byte << 4 | static_cast<unsigned>(digit);
      if (++digits % 2 == 0) exif += static_cast<char>(byte & 0xff);
    }
    stated = exif_orientation(exif);
  }
  if (stated == 0 && !xmp_.all.empty()) {
    xmp_.check_sum();
    stated = xmp_orientation(text_of(xmp_));
  }
  return stated == 0 ? 1 : stated;
}

MILLRACE_INLINE void png_source::open(const bytes& data, bool) {
  exif_ = profile_ = xmp_ = chunk();
  select(data.view());
  state_ = spng_ctx_new(0);
  if (state_ == nullptr) throw std::bad_alloc();
  check(spng_set_png_stream(state_, &pieces::read, &stream_), header);
  spng_ihdr head;
  check(spng_get_ihdr(state_, &head), header);
  width = static_cast<int>(head.width);
  height = static_cast<int>(head.height);
  interlaced_ = head.interlace_method != 0;
  depth_ = head.bit_depth;
  colours_ = head.color_type;
  orientation = stated_orientation();
}

MILLRACE_INLINE const char* png_source::no_numbers() const noexcept {
  if (colours_ != SPNG_COLOR_TYPE_INDEXED && colours_ != SPNG_COLOR_TYPE_GRAYSCALE) {
    return "the PNG has colours without a palette, or an alpha channel";
  }
  return depth_ == 16 ? "the PNG has 16 bits a pixel, and they have 8" : nullptr;
}

MILLRACE_INLINE void png_source::begin(int, const pixel_range& wanted, int& first, int& pixels) {
  first = 0;
  pixels = width;
  row_ = numbers ? (static_cast<std::size_t>(width) * depth_ + 7) / 8 : static_cast<std::size_t>(width) * 4;
  const int format = numbers ? SPNG_FMT_RAW : SPNG_FMT_RGBA8;
  if (interlaced_) {
    whole_.resize(row_ * static_cast<std::size_t>(height));
    check(spng_decode_image(state_, whole_.data(), whole_.size(), format, 0), body);
    next_ = static_cast<std::size_t>(wanted.top);
    return;
  }
  check(spng_decode_image(state_, nullptr, 0, format, SPNG_DECODE_PROGRESSIVE), body);
  whole_.resize(row_);
  for (int y = 0; y < wanted.top; ++y) decode_row(whole_.data());
}

MILLRACE_INLINE void png_source::decode_row(std::uint8_t* to) {
  const int result = spng_decode_row(state_, to, row_);
  if (result != SPNG_EOI) check(result, body);  // the last row
}

MILLRACE_INLINE void png_source::read_row(std::uint8_t* row) {
  const std::uint8_t* from = interlaced_ ? whole_.data() + row_ * next_++ : whole_.data();
  if (!numbers) {
    if (interlaced_) {
      std::memcpy(row, from, row_);
    } else {
      decode_row(row);
    }
    return;
  }
  if (!interlaced_) decode_row(whole_.data());
  const unsigned most = (1u << depth_) - 1;
  for (std::size_t x = 0, bit = 0; x < static_cast<std::size_t>(width); ++x, bit += depth_) {
    row[x * 4] = static_cast<std::uint8_t>(from[bit / 8] >> (8 - depth_ - bit % 8) & most);
  }
}

}  // namespace millrace::detail
