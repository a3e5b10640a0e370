// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::tar::detail {

/// Counts the records of a zip's central directory (PKWARE APPNOTE 4.3.12), which follows the members.
///
/// libarchive, reading a zip from its front, searches for the next member's header: one whose header is damaged it
/// passes over without a word. The directory tells how many there were.
class zip_directory {
 public:
  /// The next bytes, from the first behind the last member.
  void feed(std::string_view piece);

  std::uint64_t records() const noexcept { return records_; }

  /// Whether the directory is followed by its end record, which every zip has. Asked when all has been fed.
  bool complete() const noexcept;

 private:
  static constexpr std::size_t record_bytes = 46;  // without name, extra field and comment
  static constexpr std::size_t end_bytes = 22;

  static std::size_t number(std::string_view text, std::size_t at) noexcept {
    return static_cast<unsigned char>(text[at]) | static_cast<std::size_t>(static_cast<unsigned char>(text[at + 1]))
                                                      << 8;
  }

  std::string text_;  // a record that is not whole yet; at the end what follows the records
  std::uint64_t records_ = 0;
  bool ended_ = false;
};

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/impl/zip_directory.ipp>
#endif
