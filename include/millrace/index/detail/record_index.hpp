// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/text_frames.hpp>
#include <millrace/index/sample_format.hpp>
#include <millrace/index/shard_format.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Makes the index of a text file, or of one of records, from its bytes. Of text it finds the lines that lines() makes
/// of it, and refuses what that refuses; of TFRecords it compares every checksum. Where frames of records are too large
/// for one to be unpacked for each slice, it makes groups of them (shard_index::has_groups()); text in such frames is
/// refused. What a compressed object is unpacked to is called its text, whatever it is.
class record_index_builder final : public shard_scanner {
 public:
  /// `head`: the first text_head_bytes of the object, or all of it. Throws decode_error where they are neither of that
  /// format, which is lines, tfrecord or recordio, nor what is compressed by frames. `longest`: of lines, in bytes.
  /// Neighbouring frames with fewer than `frames.least` bytes of text are one entry of the index; records are read by
  /// groups where one has more than `frames.grouped`, and refused where a group has more than `frames.most_group`.
  record_index_builder(std::string name, shard object, std::string_view head, std::size_t longest,
                       sample_format format = sample_format::lines, frame_bounds frames = frame_bounds());

  /// Whether add() unpacks, which is work for a pool.
  bool packed() const noexcept override { return unpacker_ != nullptr; }
  bool verifies() const noexcept override { return index_.format() == sample_format::tfrecord; }
  /// The next bytes. Throws decode_error for a line that is longer than `longest`, a record of 4 GiB and a frame with
  /// too much text, archive_error for frames and records that are damaged.
  MILLRACE_INLINE void add(std::string_view piece) override;
  MILLRACE_INLINE shard_index finish(std::uint64_t size, std::string etag) override;

 private:
  void unpack(std::string_view piece);
  void add_text(std::string_view piece);
  void take(std::string_view part);
  void add_tfrecords(std::string_view piece);
  void begin_tfrecord();
  void end_tfrecord();
  void add_recordio(std::string_view piece);
  void begin_part();
  void add_records(std::string_view piece);
  bool between_records() const noexcept;
  void end_frame();
  void check_group(std::size_t g, std::uint64_t end) const;
  void close(std::uint64_t offset);
  std::string numbered() const;

  shard_index index_;
  shard object_;
  std::size_t longest_;
  std::uint64_t at_ = 0;     // of the next byte
  std::uint64_t begin_ = 0;  // of the line, or of the record's head
  std::uint64_t size_ = 0;   // of the line or record so far
  std::uint32_t crc_ = 0;
  bool cr_ = false;  // then a CR came, which may be of its end
  // Of TFRecords: what has come of the head or of the checksum at the end, and what is missing of the data.
  char word_[12] = {};
  std::size_t word_bytes_ = 0;
  bool in_head_ = true;
  std::uint64_t left_ = 0;
  // Of RecordIO, the part: what pads it, and whether another one of the record follows.
  std::size_t padding_ = 0;
  bool more_parts_ = false;
  bool in_record_ = false;
  // Of compressed text:
  frame_bounds frames_;
  std::vector<std::uint64_t> groups_;  // as index_.frames_, of the frames at whose ends records end
  bool in_groups_ = false;
  tar::format kind_ = tar::format::unknown;
  std::unique_ptr<frame_unpacker> unpacker_;
  std::uint64_t packed_at_ = 0;   // of the object
  std::uint64_t frame_ = 0;       // where the frame begins
  std::uint64_t frame_text_ = 0;  // and where its text does
};

/// The data of a record of RecordIO, whose parts are `parts`, with their heads: a slice of it, or what several parts
/// are joined to. Throws archive_error for what is no such record.
bytes recordio_data(const bytes& parts, const where& at);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/index/detail/record_index.ipp>
#endif
