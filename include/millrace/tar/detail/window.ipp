// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/window.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

MILLRACE_INLINE std::uint64_t number_at(std::string_view text, std::size_t at, std::size_t bytes) noexcept {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < bytes; ++i) n |= std::uint64_t(static_cast<unsigned char>(text[at + i])) << (8 * i);
  return n;
}

MILLRACE_INLINE std::optional<std::uint64_t> zstd_window(std::string_view frame) noexcept {
  if (frame.size() < 5) return std::nullopt;
  if (frame[0] != '\x28') return 0;
  const auto descriptor = static_cast<unsigned char>(frame[4]);
  if ((descriptor & 0x20) == 0) {
    if (frame.size() < 6) return std::nullopt;
    const auto window = static_cast<unsigned char>(frame[5]);
    const std::uint64_t base = std::uint64_t(1) << (10 + (window >> 3));
    return base + base / 8 * (window & 7);
  }
  constexpr std::size_t dictionary_bytes[] = {0, 1, 2, 4};
  const std::size_t at = 5 + dictionary_bytes[descriptor & 3];
  const std::size_t bytes = std::size_t(1) << (descriptor >> 6);
  if (frame.size() < at + bytes) return std::nullopt;
  return number_at(frame, at, bytes) + (bytes == 2 ? 256 : 0);
}

/// A number of the xz format (its section 1.2); `at` is set after it. nullopt if the text ends first.
MILLRACE_INLINE std::optional<std::uint64_t> xz_number(std::string_view text, std::size_t& at) noexcept {
  std::uint64_t n = 0;
  for (unsigned shift = 0; shift < 63 && at < text.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text[at++]);
    n |= std::uint64_t(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return n;
  }
  return std::nullopt;
}

MILLRACE_INLINE std::uint64_t xz_dictionary(std::string_view block) noexcept {
  if (block.size() < 2 || block[0] == 0) return 0;
  const auto flags = static_cast<unsigned char>(block[1]);
  std::size_t at = 2;
  for (const unsigned size_field : {0x40u, 0x80u}) {
    if ((flags & size_field) != 0 && !xz_number(block, at)) return 0;
  }
  for (int filters = (flags & 3) + 1; filters > 0; --filters) {
    constexpr std::uint64_t lzma2 = 0x21;
    const std::optional<std::uint64_t> filter = xz_number(block, at);
    const std::optional<std::uint64_t> bytes = filter ? xz_number(block, at) : std::nullopt;
    if (!bytes || *bytes > block.size() - at) return 0;
    if (*filter == lzma2 && *bytes == 1) {
      const auto bits = static_cast<unsigned char>(block[at]);
      if (bits > 40) return 0;
      return bits == 40 ? UINT32_MAX : std::uint64_t(2 | (bits & 1)) << (bits / 2 + 11);
    }
    at += static_cast<std::size_t>(*bytes);
  }
  return 0;
}

inline constexpr std::size_t xz_stream_header = 12;

MILLRACE_INLINE std::uint64_t window_of(format kind, std::string_view head) noexcept {
  switch (kind) {
    case format::zstd:
      while (head.size() >= 8 && head[0] != '\x28') {  // frames that are skipped
        const std::uint64_t size = number_at(head, 4, 4) + 8;
        if (size >= head.size()) return 0;
        head.remove_prefix(static_cast<std::size_t>(size));
      }
      return zstd_window(head).value_or(0);
    case format::xz:
      return xz_dictionary(head.substr(std::min(xz_stream_header, head.size())));
    case format::lzma:
      return head.size() < 5 ? 0 : number_at(head, 1, 4);
    default:
      return 0;
  }
}

MILLRACE_INLINE std::uint64_t xz_blocks::feed(std::string_view piece) {
  std::uint64_t largest = 0;
  while (!piece.empty() && at_ != at::lost) {
    if (skip_ != 0) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(skip_, piece.size()));
      skip_ -= n;
      piece.remove_prefix(n);
      continue;
    }
    const std::size_t n = std::min(need_ - text_.size(), piece.size());
    text_.append(piece.substr(0, n));
    piece.remove_prefix(n);
    if (text_.size() == need_) step(largest);
  }
  return largest;
}

/// The xz file format, 2 to 4, and LZMA2's chunks, which liblzma's lzma2_decoder.c describes best. `need_` bytes are
/// there.
MILLRACE_INLINE void xz_blocks::step(std::uint64_t& largest) {
  using namespace std::string_view_literals;
  const auto byte = [this](std::size_t i) { return static_cast<unsigned char>(text_[i]); };
  const auto two_bytes = [&](std::size_t i) { return std::uint64_t(byte(i)) << 8 | byte(i + 1); };
  switch (at_) {
    case at::stream: {
      if (text_ == "\0\0\0\0"sv) {  // padding between streams
        text_.clear();
        return;
      }
      if (std::string_view(text_).substr(0, 4) != "\xfd\x37zX"sv) break;
      if (need_ != xz_stream_header) {
        need_ = xz_stream_header;
        return;
      }
      const unsigned kind = byte(7) & 15u;
      check_ = kind == 0 ? 0 : std::size_t(4) << (kind - 1) / 3;
      return go_on(at::block, 0);
    }
    case at::block:
      if (byte(0) == 0) {
        data_ = 1;
        number_ = shift_ = 0;
        return go_on(at::records, 0);
      }
      need_ = (byte(0) + std::size_t(1)) * 4;
      at_ = at::block_header;
      return;
    case at::block_header:
      largest = std::max(largest, xz_dictionary(text_));
      data_ = 0;
      return go_on(at::chunk, 0);
    case at::chunk:
      ++data_;
      if (byte(0) == 0) return go_on(at::block, (-data_ & 3) + check_);
      if (byte(0) > 2 && byte(0) < 0x80) break;
      need_ = byte(0) < 0x80 ? 3 : 5;
      at_ = at::chunk_sizes;
      return;
    case at::chunk_sizes: {
      const bool packed = byte(0) >= 0x80;
      const std::uint64_t size = two_bytes(packed ? 3 : 1) + 1 + (byte(0) >= 0xc0 ? 1 : 0);  // and new properties
      data_ += text_.size() - 1 + size;
      return go_on(at::chunk, size);
    }
    case at::records:
    case at::record: {
      ++data_;
      number_ |= std::uint64_t(byte(0) & 0x7f) << shift_;
      shift_ += 7;
      const bool ends = byte(0) < 0x80;
      if (!ends && shift_ >= 63) break;
      if (ends && at_ == at::records && number_ > UINT64_MAX / 4) break;
      if (ends) numbers_ = at_ == at::records ? 2 * number_ : numbers_ - 1;
      if (!ends) return go_on(at_, 0);
      number_ = shift_ = 0;
      if (numbers_ != 0) return go_on(at::record, 0);
      go_on(at::stream, (-data_ & 3) + 4 + xz_stream_header);  // a CRC, and the stream's footer
      need_ = 4;
      return;
    }
    case at::lost:
      break;
  }
  at_ = at::lost;
}

MILLRACE_INLINE bool window_budget::take(std::uint64_t n) noexcept {
  std::uint64_t taken = taken_.load(std::memory_order_relaxed);
  do {
    if (most_ != 0 && (taken > most_ || n > most_ - taken)) return false;
  } while (!taken_.compare_exchange_weak(taken, taken + n, std::memory_order_relaxed));
  return true;
}

MILLRACE_INLINE bool window_claim::take(std::uint64_t window) {
  if (shared_ == nullptr || window <= taken_ || !refusal(window).empty()) return true;
  if (!shared_->take(window - taken_)) return false;
  taken_ = window;
  return true;
}

MILLRACE_INLINE std::string window_claim::need(std::uint64_t window) {
  std::string why = refusal(window);
  if (!why.empty() || take(window)) return why;
  return std::string("the ") + format_name(kind_) + " data needs a " +
         (kind_ == format::zstd ? "window" : "dictionary") + " of " + std::to_string(window) +
         " bytes of memory, and with the " + std::to_string(shared_->taken() - taken_) +
         " of the objects unpacked beside it that is more than the " + std::to_string(shared_->most()) +
         " of the run's memory budget: unpack fewer objects at once (unpack_options::objects)";
}

MILLRACE_INLINE std::string window_claim::refusal(std::uint64_t window) const {
  const std::uint64_t most = options_.max_window_bytes;
  const std::uint64_t budget = options_.members.budget_bytes;
  const bool beyond_option = most != 0 && window > most;
  if (!beyond_option && (budget == 0 || window <= budget)) return std::string();
  return std::string("the ") + format_name(kind_) + " data needs a " +
         (kind_ == format::zstd ? "window" : "dictionary") + " of " + std::to_string(window) +
         " bytes of memory, more than " +
         (beyond_option ? "max_window_bytes (" + std::to_string(most) + ") allows"
                        : "the " + std::to_string(budget) + " of the run's memory budget");
}

}  // namespace millrace::tar::detail
