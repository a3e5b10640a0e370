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
  void feed(std::string_view piece) {
    if (ended_) return;
    text_.append(piece.data(), piece.size());
    std::size_t at = 0;
    while (text_.size() - at >= record_bytes) {
      const std::string_view record = std::string_view(text_).substr(at);
      if (record.substr(0, 4) != "PK\x01\x02") {
        ended_ = true;
        break;
      }
      const std::size_t size = record_bytes + number(record, 28) + number(record, 30) + number(record, 32);
      if (record.size() < size) break;
      at += size;
      ++records_;
    }
    text_.erase(0, at);
  }

  std::uint64_t records() const noexcept { return records_; }

  /// Whether the directory is followed by its end record, which every zip has. Asked when all has been fed.
  bool complete() const noexcept {
    const std::string_view rest = text_;
    if (rest.size() < end_bytes) return false;
    return rest.substr(0, 4) == "PK\x05\x06" ||  // or its 64-bit form
           rest.substr(0, 4) == "PK\x06\x06";
  }

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
