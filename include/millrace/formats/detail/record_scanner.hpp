// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/detail/text_frames.hpp>
#include <millrace/index/sample_index_builder.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Makes the index of a file of records, which are plain or compressed by frames of zstd, members of gzip, or a stream
/// of zlib; what such a file is unpacked to is called its text. A format says where records lie in the text. Frames
/// that are too large to be unpacked for each slice make groups (shard_index::has_groups()).
class record_scanner : public shard_scanner {
 public:
  /// Throws decode_error where the head is of another format, or compressed in a way of which no record can be read
  /// alone.
  MILLRACE_INLINE void begin(std::string_view head, std::optional<std::uint64_t> total, std::size_t part) override;
  /// True where add() unpacks, which is work for a pool.
  bool packed() const noexcept override { return unpacker_ != nullptr; }
  /// Throws decode_error for a record that is too long and a frame with too much text, archive_error for frames and
  /// records that are damaged.
  MILLRACE_INLINE void add(const bytes& piece) override;
  MILLRACE_INLINE shard_index finish(std::uint64_t size, std::string etag) override;

 protected:
  /// Neighbouring frames with fewer than `frames.least` bytes of text are one entry of the index; records are read by
  /// groups where one has more than `frames.grouped`, and refused where a group has more than `frames.most_group`.
  record_scanner(const shard_format& format, std::string name, shard object, frame_bounds frames);

  /// How records that begin like this are compressed; tar::format::unknown: not at all.
  virtual tar::format compression(std::string_view head) const = 0;
  /// More of the text.
  virtual void add_text(std::string_view piece) = 0;
  /// True if the next byte is the first one of a record.
  virtual bool between_records() const noexcept = 0;
  /// All text has come. Throws where a record is cut.
  virtual void end_text() = 0;
  /// True if a record may lie in a frame of any length, whose records then make a group. False: a frame has at most
  /// most_frame_text.
  virtual bool makes_groups() const noexcept { return true; }
  /// "line", "record".
  virtual const char* unit() const noexcept { return "record"; }
  /// The way in which data that is compressed otherwise can be read.
  virtual const char* other_way() const noexcept { return "unpack it"; }

  /// The next record is bytes [offset, offset + size_) of the text, with crc_; both begin anew.
  void close(std::uint64_t offset);
  /// The record that comes next, for messages, and its place in the object.
  std::string numbered() const;
  where place() const { return where{object_.shown(), packed() ? frame_ : begin_, {}}; }
  /// Throws archive_error where the object ends before `end`, which is said by the length of `part`.
  void check_end(std::uint64_t end, const char* part) const;

  sample_index_builder index_;
  shard object_;
  std::uint64_t at_ = 0;     // of the next byte
  std::uint64_t begin_ = 0;  // of the record, with its head
  std::uint64_t size_ = 0;   // of the record so far
  std::uint32_t crc_ = 0;

 private:
  void unpack(std::string_view piece);
  void end_frame();
  void check_group(std::size_t g, std::uint64_t end) const;

  // Of compressed text:
  frame_bounds bounds_;
  std::vector<std::uint64_t> frames_;  // of each where it begins in the object and in the text; and their ends
  std::vector<std::uint64_t> groups_;  // the same, of the frames at whose ends records end
  bool in_groups_ = false;
  tar::format kind_ = tar::format::unknown;
  std::unique_ptr<frame_unpacker> unpacker_;
  std::uint64_t packed_at_ = 0;   // of the object
  std::uint64_t frame_ = 0;       // where the frame begins
  std::uint64_t frame_text_ = 0;  // and where its text does
};

/// The compression of `head`, which begins no plain file of records. Throws decode_error for an archive, which is no
/// `file`.
tar::format compression_of_records(std::string_view head, const shard& of, const char* file);

/// Makes the one field of samples that are records, and unpacks groups of frames.
class record_reader : public shard_reader {
 public:
  record_reader(const shard_index& index, const char* field) noexcept : index_(index), field_(field) {}
  MILLRACE_INLINE void fill(sample& s, const shard_index::rows& rows, std::size_t number,
                            const bytes& record) const override;
  MILLRACE_INLINE unpacked_group unpack(const shard& object, std::size_t g,
                                        const std::vector<bytes>& parts) const override;

 private:
  const shard_index& index_;
  const char* field_;
};

}  // namespace millrace::inline MILLRACE_ABI::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/detail/record_scanner.ipp>
#endif
