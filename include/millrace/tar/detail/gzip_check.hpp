// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <millrace/base/crc32.hpp>

namespace millrace::tar::detail {

/// Verifies the checksum and length at the end of a gzip stream (RFC 1952), which libarchive reads and ignores: without
/// this a flipped bit would pass for data.
///
/// A stream may be several gzip members one after the other, each with a checksum of its own, and from outside nobody
/// sees where one ends. What can be told: the checksum fits the whole output (right), it does not and nothing in the
/// input looks like the header of a further member (wrong), or the stream may be of several members (unknown).
class gzip_check {
 public:
  enum class verdict : unsigned char { right, wrong, unknown };

  /// The next compressed bytes.
  void input(std::string_view piece) noexcept {
    if (!further_member_ && !piece.empty()) {
      char joint[2 * overlap];  // headers that straddle pieces
      std::memcpy(joint, edge_, edge_size_);
      const std::size_t first = std::min(piece.size(), overlap);
      std::memcpy(joint + edge_size_, piece.data(), first);
      search(std::string_view(static_cast<const char*>(joint), edge_size_ + first), fed_ - edge_size_);
      search(piece, fed_);
      keep_edge(piece);
    }
    fed_ += piece.size();
  }

  /// The next decompressed bytes.
  void output(std::string_view piece) noexcept {
    crc_ = crc32(crc_, piece.data(), piece.size());
    length_ += static_cast<std::uint32_t>(piece.size());
  }

  /// The judgement, when `trailer` is the stream's last eight bytes.
  verdict judge(std::string_view trailer) const noexcept {
    if (trailer.size() == 8 && number(trailer) == crc_ && number(trailer.substr(4)) == length_) return verdict::right;
    return further_member_ ? verdict::unknown : verdict::wrong;
  }

 private:
  static constexpr std::size_t overlap = 9;  // one byte less than a header

  static std::uint32_t number(std::string_view four) noexcept {
    std::uint32_t value = 0;
    for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(four[i]);
    return value;
  }

  /// Magic, deflate, no reserved flag, and one of the three "extra flags" that exist: by chance once in ten gigabytes.
  static bool is_header(const char* p) noexcept {
    return p[0] == '\x1f' && p[1] == '\x8b' && p[2] == 8 && (p[3] & '\xe0') == 0 &&
           (p[8] == 0 || p[8] == 2 || p[8] == 4);
  }

  void search(std::string_view text, std::uint64_t at) noexcept {
    for (std::size_t i = 0; (i = text.find('\x1f', i)) != std::string_view::npos && i + overlap < text.size(); ++i) {
      if (at + i != 0 && is_header(text.data() + i)) further_member_ = true;
    }
  }

  void keep_edge(std::string_view piece) noexcept {
    if (piece.size() >= overlap) {
      std::memcpy(edge_, piece.data() + piece.size() - overlap, overlap);
      edge_size_ = overlap;
      return;
    }
    const std::size_t keep = std::min(edge_size_, overlap - piece.size());
    std::memmove(edge_, edge_ + edge_size_ - keep, keep);
    std::memcpy(edge_ + keep, piece.data(), piece.size());
    edge_size_ = keep + piece.size();
  }

  std::uint32_t crc_ = 0;
  std::uint32_t length_ = 0;
  bool further_member_ = false;
  std::uint64_t fed_ = 0;
  std::size_t edge_size_ = 0;
  char edge_[overlap] = {};
};

}  // namespace millrace::tar::detail
