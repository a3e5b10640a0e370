// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/detail/record_scanner.hpp>
#include <millrace/formats/shard_format.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Shards are TFRecord files, plain, or compressed by members of gzip, frames of zstd or a stream of zlib: each record
/// is a sample of one field, "record", whose key is the file's name, `#` and the record's number from 0. Members and
/// frames with more than 1 MiB of records are groups, which are unpacked as a whole (shard_format says what that means
/// for order and memory); those with more than 4 GiB are refused. Every CRC32C of a file is compared when its index is
/// made, and the records' again when they are read. For tf.Example: records/tf_example.hpp.
///
/// Errors, when the index is made: archive_error for files, frames and records that are damaged or cut; decode_error
/// for what is no TFRecord file, and for a record of 4 GiB.
std::shared_ptr<const shard_format> tfrecord_shards();

namespace detail {

/// Finds the records of a TFRecord file, and compares every checksum.
class tfrecord_scanner final : public record_scanner {
 public:
  tfrecord_scanner(const shard_format& format, std::string name, shard object, frame_bounds frames = frame_bounds())
      : record_scanner(format, std::move(name), std::move(object), frames) {}
  bool verifies() const noexcept override { return true; }

 private:
  static constexpr std::size_t head_bytes = 12;  // before a record's data
  static constexpr std::size_t tail_bytes = 4;   // and after them

  MILLRACE_INLINE tar::format compression(std::string_view head) const override;
  MILLRACE_INLINE void add_text(std::string_view piece) override;
  bool between_records() const noexcept override { return left_ == 0 && word_bytes_ == 0 && in_head_; }
  MILLRACE_INLINE void end_text() override;
  void begin_record();
  void end_record();

  char word_[12] = {};  // what has come of the head, or of the checksum at the end
  std::size_t word_bytes_ = 0;
  bool in_head_ = true;
  std::uint64_t left_ = 0;  // missing of the data
};

}  // namespace detail

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/tfrecord_shards.ipp>
#endif
