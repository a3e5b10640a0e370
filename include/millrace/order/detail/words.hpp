// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Whole numbers and texts as one short text, base64 (RFC 4648, "-" and "_", no padding), with a check word at its end:
/// a number takes a byte for each 7 bits.
class word_writer {
 public:
  void add(std::uint64_t word);
  void add(std::string_view text);
  std::string text() const;

 private:
  std::string bytes_;
};

/// Reads the text of word_writer. After a mistake all values are 0 and empty, and good() is false.
class word_reader {
 public:
  explicit word_reader(std::string_view text);

  std::uint64_t next();
  std::string next_text();
  /// The number, which must not be larger.
  std::uint64_t next_below(std::uint64_t bound);
  /// Nothing was wrong so far.
  bool good() const noexcept { return good_; }
  /// Nothing was wrong, and nothing is left.
  bool done() const noexcept { return good_ && at_ == bytes_.size(); }
  /// Bytes left: no more numbers than these can come.
  std::size_t left() const noexcept { return good_ ? bytes_.size() - at_ : 0; }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
  bool good_ = true;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/detail/words.ipp>
#endif
