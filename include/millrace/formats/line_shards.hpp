// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/detail/record_scanner.hpp>
#include <millrace/formats/shard_format.hpp>

namespace millrace::inline MILLRACE_ABI {

struct line_shards_options {
  std::size_t max_line = 16 * MiB;  ///< in bytes; a longer line is a decode_error when the index is made
};

/// Shards are text files (JSONL, CSV), plain or compressed by frames of zstd or members of gzip with at most 16 MiB of
/// text each: each line is a sample of one field, "line", whose key is the file's name, `#` and the line's number from
/// 0. Lines are those of lines(): LF or CR LF ends them and is no part of them, the last one needs none, and empty
/// lines are samples.
///
/// Errors, when the index is made: decode_error, as of lines(), for what is no text, for text that is compressed
/// otherwise and for a line that is too long; archive_error for frames that are damaged or cut.
std::shared_ptr<const shard_format> line_shards(line_shards_options options = {});

namespace detail {

/// Finds the lines of a text file.
class line_scanner final : public record_scanner {
 public:
  /// `longest`: of lines, in bytes.
  line_scanner(const shard_format& format, std::string name, shard object, std::size_t longest,
               frame_bounds frames = frame_bounds());

 private:
  MILLRACE_INLINE tar::format compression(std::string_view head) const override;
  MILLRACE_INLINE void add_text(std::string_view piece) override;
  bool between_records() const noexcept override { return size_ == 0 && !cr_; }
  MILLRACE_INLINE void end_text() override;
  bool makes_groups() const noexcept override { return false; }
  const char* unit() const noexcept override { return "line"; }
  MILLRACE_INLINE const char* other_way() const noexcept override;
  void take(std::string_view part);

  std::size_t longest_;
  bool cr_ = false;  // then a CR came, which may be of its end
};

}  // namespace detail

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/line_shards.ipp>
#endif
