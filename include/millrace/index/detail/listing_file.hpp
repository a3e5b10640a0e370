// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/data/shard.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Makes the file of a listing. All numbers unsigned and little-endian:
///
///     byte  0   8 bytes  "mrlisted"
///           8   4        version: 1
///          12   4        CRC32C of everything after
///          16   8        how many objects follow
///          24   8        when they were listed, in seconds since 1970
///          32   4        bytes of the prefix that was listed; the prefix
///                        of each object: 4 bytes how much of the prefix its URL begins with; 4 bytes length of the
///                        rest of its URL, the rest; 8 bytes its size (all ones: not known); 2 bytes length of its
///                        ETag, the ETag
class listing_writer {
 public:
  explicit listing_writer(std::string prefix) : prefix_(std::move(prefix)) {}
  void add(const shard& s);
  std::string text() const;

 private:
  std::string prefix_;
  std::string entries_;
  std::uint64_t count_ = 0;
};

/// Reads one. Whatever bytes are given, it throws an index_error that names `file`, the byte and the reason, or gives
/// what was written. `text` must outlive it.
class listing_reader {
 public:
  /// index_error where the text is damaged; configuration_error where it is the listing of another prefix.
  listing_reader(std::string_view text, std::string file, std::string_view prefix);
  /// Whether its checksum is right, if it is a listing.
  static bool is_whole(std::string_view text) noexcept;
  std::uint64_t count() const noexcept { return count_; }
  /// When it was made, in seconds since 1970.
  std::int64_t made() const noexcept { return made_; }
  /// The next object; nullopt after the last one.
  std::optional<shard> next();

 private:
  std::string_view taken(std::uint64_t n);
  std::uint64_t number(int bytes);

  const std::string_view text_;
  const std::string file_;
  std::string_view prefix_;
  std::size_t at_ = 16;
  std::uint64_t count_ = 0;
  std::uint64_t left_ = 0;
  std::int64_t made_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/index/detail/listing_file.ipp>
#endif
