// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/shard_index.hpp>

namespace millrace::detail {

/// Makes the index of a text file from its bytes. It finds the lines that lines() makes of them, and refuses what that
/// refuses.
class line_index_builder {
 public:
  /// `head`: the first text_head_bytes of the object, or all of it. Throws decode_error where they are no plain text.
  line_index_builder(std::string name, shard object, std::string_view head, std::size_t longest);

  /// The next bytes. Throws decode_error for a line that is longer than `longest`.
  void add(std::string_view piece);
  shard_index finish(std::uint64_t size, std::string etag);

 private:
  void take(std::string_view part);
  void close();

  shard_index index_;
  shard object_;
  std::size_t longest_;
  std::uint64_t at_ = 0;     // of the next byte
  std::uint64_t begin_ = 0;  // of the line
  std::uint64_t size_ = 0;   // of the line so far
  std::uint32_t crc_ = 0;
  bool cr_ = false;  // then a CR came, which may be of its end
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/index/detail/line_index.ipp>
#endif
