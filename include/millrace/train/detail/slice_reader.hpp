// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/detail/text_frames.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/shards/detail/second_reading.hpp>
#include <millrace/shards/range_reader.hpp>
#include <millrace/shards/range_scheduler.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/train/detail/slice_piece.hpp>
#include <millrace/train/detail/training_plan.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Reads the ranges of slice_pieces, unpacks them, and makes samples of them by the index: their key, fields and
/// origin, compared with its checksums. It knows the versions of the objects. epoch_reader says when a range is read.
class slice_reader {
 public:
  /// Both outlive it.
  slice_reader(const training_plan& source, range_reader& ranges, const coroutine_context& here);

  /// The readers of the groups of data set `d`.
  shard_readers& readers(std::size_t d) noexcept { return readers_[d]; }
  /// The shard as the samples of an epoch of its data set name it.
  const std::shared_ptr<const shard>& named(std::uint64_t number, std::uint64_t epoch);
  /// True if the index has rows of the sample: other samples have objects as their fields, or rows in memory.
  bool has_rows(const sample_place& place) const noexcept;
  /// True if the range will be read from a local disk.
  bool is_local(const slice_piece::range& r) const;

  /// Reads a range, and ends its turn: `r.data`, or rows of mapped files. Errors: range_reader's; configuration_error
  /// for a store without ranges, and archive_error for more bytes than the budget allows an item; stale_index_error for
  /// an object that is not the index's.
  MILLRACE_COROUTINE task<void> read(slice_piece::range& r, range_scheduler::turn& turn);
  /// True if the range, or its group, must be unpacked after it has been read.
  bool is_packed(const slice_piece::range& r) const noexcept;
  /// Unpacks it, or its group once all of that has come, by the pool where there is one. Bytes that prove damaged are
  /// read once more.
  MILLRACE_COROUTINE task<void> unpack(slice_piece::range& r);
  /// Reads a range, or its group, once more, and unpacks it; the first reading led to the error `why`.
  MILLRACE_COROUTINE task<second_reading> read_again(slice_piece::range& r, std::string why);

  /// Fills `s` from `r`, the first of its ranges; `rows`, of the index, have it, null where has_rows() is false.
  void fill(sample& s, const shard_index::rows* rows, const sample_place& place, std::uint64_t epoch,
            const slice_piece::range& r);
  /// Fills `s` from rows in memory.
  void fill_of_rows(sample& s, const sample_place& place, std::uint64_t epoch);

 private:
  shard object_of(std::uint64_t number) const;
  shard object_of(const slice_piece::range& r) const;
  std::shared_ptr<const shard> dealt(shard object, std::uint64_t number, std::uint64_t epoch) const;
  /// If the index has no ETag, all ranges are of the version of the first one that came.
  void note_version(std::uint64_t number, const std::string& etag, std::uint64_t offset);
  void check_budget(const slice_piece::range& r, const shard& object) const;
  frame_range range_in_object(const slice_piece::range& r) const;
  std::vector<byte_stretch> stretches_of(const slice_piece::range& r) const;
  MILLRACE_COROUTINE task<void> unpack_parts(slice_piece::range& r, std::vector<bytes> parts);
  static const bytes& text_in(const slice_piece::range& r) { return r.of != nullptr ? r.of->data.text : r.data; }
  static bytes slice_of(const sample& s, const slice_piece::range& r, const shard_index::rows& rows,
                        std::size_t number);
  void fill_of_objects(sample& s, const sample_place& place, std::uint64_t epoch,
                       const slice_piece::range* first) const;

  const training_plan& source_;
  range_reader& ranges_;
  const coroutine_context here_;
  const cpu_pool::share pool_;                            // an empty one runs jobs here
  std::vector<shard_readers> readers_;                    // of each data set
  std::unordered_map<std::uint64_t, std::string> etags_;  // of shards whose index has none
  std::unordered_map<std::uint64_t, std::shared_ptr<const shard>> named_;
  std::uint64_t given_ = 0;  // bytes of samples that were made
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/slice_reader.ipp>
#endif
