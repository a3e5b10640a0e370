// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/order/detail/words.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE constexpr char word_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
MILLRACE_INLINE constexpr std::size_t word_check_bytes = 4;

MILLRACE_INLINE std::uint32_t word_check(std::string_view bytes) noexcept {
  hasher128 all;
  all.add(bytes);
  return static_cast<std::uint32_t>(all.value().low);
}

MILLRACE_INLINE void word_writer::add(std::uint64_t word) {
  for (; word >= 0x80; word >>= 7) bytes_ += static_cast<char>((word & 0x7f) | 0x80);
  bytes_ += static_cast<char>(word);
}

MILLRACE_INLINE void word_writer::add(std::string_view text) {
  add(text.size());
  bytes_ += text;
}

MILLRACE_INLINE std::string word_writer::text() const {
  std::string all = bytes_;
  const std::uint32_t check = word_check(bytes_);
  for (std::size_t i = 0; i < word_check_bytes; ++i) all += static_cast<char>((check >> (8 * i)) & 0xff);
  std::string out;
  out.reserve(all.size() * 4 / 3 + 3);
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : all) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (held += 8; held >= 6; held -= 6) out += word_digits[(bits >> (held - 6)) & 63];
  }
  if (held > 0) out += word_digits[(bits << (6 - held)) & 63];
  return out;
}

MILLRACE_INLINE word_reader::word_reader(std::string_view text) {
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const std::size_t digit = std::string_view(word_digits).find(c);
    if (digit == std::string_view::npos) good_ = false;
    bits = bits << 6 | static_cast<std::uint32_t>(digit & 63);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes_ += static_cast<char>((bits >> held) & 0xff);
    }
  }
  if (bytes_.size() < word_check_bytes) good_ = false;
  if (!good_) return;
  std::uint32_t check = 0;
  for (std::size_t i = word_check_bytes; i-- > 0; bytes_.pop_back()) {
    check |= std::uint32_t{static_cast<unsigned char>(bytes_.back())} << (8 * i);
  }
  good_ = check == word_check(bytes_);
}

MILLRACE_INLINE std::uint64_t word_reader::next() {
  std::uint64_t word = 0;
  for (int shift = 0; good_; shift += 7) {
    if (at_ == bytes_.size() || shift > 63) break;
    const auto byte = static_cast<unsigned char>(bytes_[at_++]);
    word |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return word;
  }
  good_ = false;
  return 0;
}

MILLRACE_INLINE std::uint64_t word_reader::next_below(std::uint64_t bound) {
  const std::uint64_t word = next();
  if (word >= bound) good_ = false;
  return good_ ? word : 0;
}

MILLRACE_INLINE std::string word_reader::next_text() {
  const std::uint64_t length = next();
  if (length > left()) good_ = false;
  if (!good_) return {};
  const std::size_t from = at_;
  at_ += static_cast<std::size_t>(length);
  return bytes_.substr(from, static_cast<std::size_t>(length));
}

}  // namespace millrace::detail
