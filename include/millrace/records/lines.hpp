// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/shards/unpack.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
class line_splitter;
class line_mover;
}
struct shuffle_options;

/// A batch of text lines: slices of the fetched slabs, without their line ends.
///
/// Lines of one batch may come from several pieces; each is a view that the batch keeps alive. A batch retains the
/// slabs its lines lie in.
class line_batch {
 public:
  std::vector<std::string_view> lines;
  origin from;  ///< of the first line: offset of its first byte, ordinal of the line in its shard

  std::size_t size() const noexcept { return lines.size(); }
  auto begin() const noexcept { return lines.begin(); }
  auto end() const noexcept { return lines.end(); }

  /// The place of line `i`, as `from`; a batch may have lines of several shards. So an error names the line,
  /// `read(b.lines[i], b.origin_of(i).at())`, and each line has its own random numbers, `b.origin_of(i).random(0)`. For
  /// a batch that lines() did not make, `from`.
  origin origin_of(std::size_t i) const;

  /// Keeps the memory that views of this batch point into.
  void retain(bytes memory) {
    if (first_memory_.memory() == nullptr) {
      first_memory_ = std::move(memory);
    } else {
      memory_.push_back(std::move(memory));
    }
  }

  friend std::size_t byte_size(const line_batch& b) noexcept;
  friend std::size_t samples_in_batch(const line_batch& b) noexcept { return b.size(); }

 private:
  friend detail::line_splitter;
  friend detail::line_mover;
  /// Consecutive lines in one piece of a shard, after those that begin with `from`.
  struct run {
    run(std::size_t f, const char* b, origin a) : first(f), begin(b), at(std::move(a)) {}
    std::size_t first;
    const char* begin;  // of its first line
    origin at;
  };
  // Lines of one piece take nothing of the vectors: small batches are made and dropped at the rate of lines.
  const char* begin_ = nullptr;  // of the first line
  std::vector<run> runs_;
  bytes first_memory_;
  std::vector<bytes> memory_;  // more
};

/// How text is cut into lines.
struct lines_options {
  std::size_t batch = 512;          ///< lines per batch; the last one of the stream may have fewer
  std::size_t max_line = 16 * MiB;  ///< a longer line is an error: nothing grows without bound
  unpack_options unpack = {};       ///< of compressed shards
  // Bounds of compressed shards, as in tar::archive_options.
  std::uint64_t max_ratio = 1100;
  std::uint64_t max_window_bytes = 128 * MiB;
};

namespace detail {

MILLRACE_COROUTINE async_generator<line_batch> split_lines(async_generator<chunk> in, lines_options options,
                                                           unpack_place place);
MILLRACE_COROUTINE async_generator<line_batch> single_lines(async_generator<line_batch> in,
                                                            std::shared_ptr<std::size_t> largest);
MILLRACE_COROUTINE async_generator<line_batch> joined_lines(async_generator<line_batch> in,
                                                            std::shared_ptr<std::size_t> largest);

}  // namespace detail

/// shuffle() of batches of lines: its window holds lines, each in memory of its own, and it yields batches of as many
/// as it got.
MILLRACE_COROUTINE stream<line_batch> shuffle_parts(async_generator<line_batch>&& source,
                                                    const shuffle_options& options);

/// Stage: chunks -> batches of lines (text, JSONL, CSV). Line ends are LF or CR LF and are not part of the lines; the
/// last line of a shard needs none; lines never span shards, batches do. Lines are views into the fetched memory; the
/// batch keeps it.
///
/// Shards that begin like compressed data (gzip, bzip2, xz, zstd, lz4, lzma), in whatever number of members or frames,
/// are unpacked on a pool, several at a time, in order (see unpack_options); offsets then count unpacked bytes. Data
/// that begins like another compression, or whose name says that it is compressed (.br, .Z, .gz) while it does not look
/// like text, is refused.
///
/// Bound: one batch and, from the first compressed shard on, options.unpack.bytes. Throws decode_error for a line
/// beyond options.max_line and for a shard that is a tar, zip or 7z archive or compressed in a way that is not unpacked
/// here; archive_error for compressed data that is cut or damaged.
MILLRACE_COROUTINE inline auto lines(lines_options options = {}) {
  if (options.batch == 0) throw configuration_error("a batch of lines has at least one line");
  return [options, place = detail::unpack_place(options.unpack)](async_generator<chunk> in) {
    return place.bound(stream<line_batch>(detail::split_lines(std::move(in), options, place)).named("lines"),
                       "lines, unpacked");
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/records/lines.ipp>
#endif
