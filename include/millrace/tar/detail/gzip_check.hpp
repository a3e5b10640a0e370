// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <millrace/base/crc.hpp>

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
  void input(std::string_view piece) noexcept;

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

  static std::uint32_t number(std::string_view four) noexcept;

  /// Magic, deflate, no reserved flag, and one of the three "extra flags" that exist: by chance once in ten gigabytes.
  static bool is_header(const char* p) noexcept {
    return p[0] == '\x1f' && p[1] == '\x8b' && p[2] == 8 && (p[3] & '\xe0') == 0 &&
           (p[8] == 0 || p[8] == 2 || p[8] == 4);
  }

  void search(std::string_view text, std::uint64_t at) noexcept;

  void keep_edge(std::string_view piece) noexcept;

  std::uint32_t crc_ = 0;
  std::uint32_t length_ = 0;
  bool further_member_ = false;
  std::uint64_t fed_ = 0;
  std::size_t edge_size_ = 0;
  char edge_[overlap] = {};
};

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/impl/gzip_check.ipp>
#endif
