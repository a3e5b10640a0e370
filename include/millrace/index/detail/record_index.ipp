// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/detail/record_index.hpp>
#include <millrace/records/detail/text_format.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// What a TFRecord file has in the place of a CRC32C: of data with checksums in it the plain one is weak.
MILLRACE_INLINE std::uint32_t masked(std::uint32_t crc) noexcept { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

/// Whether a TFRecord's length is at the front of `head`, with its checksum.
MILLRACE_INLINE bool begins_tfrecord(std::string_view head) noexcept {
  return head.size() >= 12 && read_le(head, 8, 4) == masked(crc32c(0, head.data(), 8));
}

/// What each part of a record of RecordIO begins with.
inline constexpr std::uint32_t recordio_magic = 0xced7230aU;

/// How records that begin like this are compressed; format::unknown: not at all. A plain TFRecord file may begin like
/// gzip, by the length of its first record: so the checksum of that decides.
MILLRACE_INLINE tar::format records_format(std::string_view head, sample_format format, const shard& of) {
  const bool tfrecords = format == sample_format::tfrecord;
  if (tfrecords ? begins_tfrecord(head) : head.size() >= 4 && read_le(head, 0, 4) == recordio_magic) {
    return tar::format::unknown;
  }
  const tar::format kind = tar::detect(head);
  if (kind == tar::format::unknown && begins_zlib(head)) return tar::format::deflate;
  if (kind == tar::format::tar || kind == tar::format::zip || kind == tar::format::seven_zip) {
    throw decode_error(std::string("this is a ") + tar::format_name(kind) + " archive and no " +
                           (tfrecords ? "TFRecord file" : "RecordIO file"),
                       where{of.shown(), 0, {}});
  }
  return kind;
}

MILLRACE_INLINE record_index_builder::record_index_builder(std::string name, shard object, std::string_view head,
                                                           std::size_t longest, sample_format format,
                                                           frame_bounds frames)
    : object_(std::move(object)),
      longest_(longest < UINT32_MAX ? longest : UINT32_MAX - 1),
      frames_(frames) {
  const bool lines = format == sample_format::lines;
  const tar::format kind = lines ? text_format(head, object_) : records_format(head, format, object_);
  if (kind == tar::format::gzip || kind == tar::format::zstd || kind == tar::format::deflate) {
    unpacker_ = make_frame_unpacker(kind, object_);
    kind_ = kind;
    index_.frames_ = groups_ = {0, 0};
  } else if (kind != tar::format::unknown) {
    throw decode_error(std::string("this is ") + tar::format_name(kind) + " data, of which no " +
                           (lines ? "line can be read alone: write it as frames of zstd, `split -C 4M --filter=zstd`, "
                                    "unpack it, or read it as a stream, by shard_epochs() and lines()"
                                  : "record can be read alone: unpack it"),
                       where{object_.shown(), 0, {}});
  }
  index_.name_ = std::move(name);
  index_.format_ = format;
  index_.flags_ = shard_index::with_keys | shard_index::with_checksums;
}

MILLRACE_INLINE void record_index_builder::add(std::string_view piece) {
  if (packed()) return unpack(piece);
  add_records(piece);
}

MILLRACE_INLINE void record_index_builder::add_records(std::string_view piece) {
  switch (index_.format_) {
    case sample_format::tfrecord: return add_tfrecords(piece);
    case sample_format::recordio: return add_recordio(piece);
    default: add_text(piece);
  }
}

MILLRACE_INLINE void record_index_builder::unpack(std::string_view piece) {
  const std::string kind = frames_name(kind_);
  const bool lines = index_.format_ == sample_format::lines;
  while (!piece.empty() || unpacker_->more()) {
    const std::size_t before = piece.size();
    const std::string_view text = unpacker_->next(piece);
    packed_at_ += before - piece.size();
    if (!unpacker_->wrong().empty()) {
      throw archive_error("the frame of " + kind + " that begins here is damaged: " + unpacker_->wrong() +
                              ", after byte " + std::to_string(at_ + text.size()) + " of the text",
                          where{object_.shown(), frame_, {}});
    }
    add_records(text);
    if (lines && at_ - frame_text_ > most_frame_text) {
      throw decode_error("this frame of " + kind +
                             " has more than 16 MiB of text, and a line cannot be read without all of it: write "
                             "frames of some MiB (" +
                             (kind_ == tar::format::gzip ? "`bgzip`" : "`split -C 4M --filter=zstd`") +
                             "), unpack it, or read it as a stream, by shard_epochs() and lines()",
                         where{object_.shown(), frame_, {}});
    }
    in_groups_ = in_groups_ || (!lines && at_ - frame_text_ > frames_.grouped);
    if (in_groups_) check_group(groups_.size() / 2 - 1, at_);
    if (unpacker_->between_frames()) end_frame();
  }
}

/// Group `g`, which ends at byte `end` of the text.
MILLRACE_INLINE void record_index_builder::check_group(std::size_t g, std::uint64_t end) const {
  if (end - groups_[2 * g + 1] <= frames_.most_group) return;
  throw decode_error(std::string("the frames of ") + frames_name(kind_) + " that begin here have more than " +
                         std::to_string(frames_.most_group) +
                         " bytes of records, which are read together, as none can be read without all of its frame: "
                         "unpack the object, or write it as frames of some MiB, or as several objects",
                     where{object_.shown(), groups_[2 * g], {}});
}

MILLRACE_INLINE void record_index_builder::end_frame() {
  frame_ = packed_at_;
  frame_text_ = at_;
  if (at_ - index_.frames_.back() >= frames_.least) index_.frames_.insert(index_.frames_.end(), {frame_, at_});
  if (at_ != groups_.back() && at_ - groups_.back() >= frames_.least && between_records()) {
    groups_.insert(groups_.end(), {frame_, at_});
  }
}

/// Whether the next byte is the first one of a record. Of text this is not asked.
MILLRACE_INLINE bool record_index_builder::between_records() const noexcept {
  return left_ == 0 && padding_ == 0 && !more_parts_ && word_bytes_ == 0 &&
         (index_.format_ == sample_format::recordio || in_head_);
}

MILLRACE_INLINE void record_index_builder::add_text(std::string_view piece) {
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    const std::string_view part = piece.substr(0, end);
    take(part);
    at_ += part.size();
    if (end == std::string_view::npos) return;
    close(begin_);
    begin_ = ++at_;
    piece.remove_prefix(end + 1);
  }
}

MILLRACE_INLINE void record_index_builder::take(std::string_view part) {
  if (part.empty()) return;
  if (size_ + (cr_ ? 1 : 0) + part.size() > longest_) {
    throw decode_error("line " + std::to_string(index_.rows_.records.size()) + " is longer than " +
                           std::to_string(longest_) + " bytes (max_line)",
                       where{object_.shown(), begin_, {}});
  }
  if (cr_) {
    crc_ = crc32c(crc_, "\r", 1);
    ++size_;
  }
  cr_ = part.back() == '\r';
  if (cr_) part.remove_suffix(1);
  crc_ = crc32c(crc_, part.data(), part.size());
  size_ += part.size();
}

/// The record that comes next, for messages.
MILLRACE_INLINE std::string record_index_builder::numbered() const {
  std::string name = "record " + std::to_string(index_.rows_.records.size());
  if (packed()) name += ", at byte " + std::to_string(begin_) + " of what the object is unpacked to,";
  return name;
}

MILLRACE_INLINE void record_index_builder::add_tfrecords(std::string_view piece) {
  while (!piece.empty()) {
    std::size_t taken = 0;
    if (left_ > 0) {
      taken = static_cast<std::size_t>(std::min<std::uint64_t>(left_, piece.size()));
      crc_ = crc32c(crc_, piece.data(), taken);
      size_ += taken;
      left_ -= taken;
    } else {
      const std::size_t whole = in_head_ ? shard_index::tfrecord_head : shard_index::tfrecord_tail;
      taken = std::min(whole - word_bytes_, piece.size());
      std::memcpy(word_ + word_bytes_, piece.data(), taken);
      word_bytes_ += taken;
      if (word_bytes_ == whole) {
        in_head_ ? begin_tfrecord() : end_tfrecord();
        word_bytes_ = 0;
        in_head_ = !in_head_;
      }
    }
    at_ += taken;
    piece.remove_prefix(taken);
  }
}

MILLRACE_INLINE void record_index_builder::begin_tfrecord() {
  const std::string_view head(word_, shard_index::tfrecord_head);
  const where at{object_.shown(), packed() ? frame_ : begin_, {}};
  if (!begins_tfrecord(head)) {
    char text[64];
    std::snprintf(text, sizeof text, "%08x and not %08x", masked(crc32c(0, word_, 8)),
                  static_cast<unsigned>(read_le(head, 8, 4)));
    throw archive_error(numbered() + " is damaged: the masked CRC32C of its length is " + text + " as it says" +
                            (begin_ == 0 ? ", or this is no TFRecord file" : ""),
                        at);
  }
  left_ = read_le(head, 0, 8);
  if (left_ > UINT32_MAX) {
    throw decode_error(numbered() + " has " + std::to_string(left_) + " bytes, by its length: an index has records of "
                           "less than 4 GiB",
                       at);
  }
  const std::uint64_t end = begin_ + shard_index::tfrecord_head + left_ + shard_index::tfrecord_tail;
  if (!packed() && object_.size && end > *object_.size) {
    throw archive_error(numbered() + " ends at byte " + std::to_string(end) +
                            ", by its length, and the object at byte " + std::to_string(*object_.size),
                        at);
  }
}

MILLRACE_INLINE void record_index_builder::end_tfrecord() {
  const auto said = static_cast<std::uint32_t>(read_le(std::string_view(word_, shard_index::tfrecord_tail), 0, 4));
  if (masked(crc_) != said) {
    char text[64];
    std::snprintf(text, sizeof text, "%08x and not %08x", masked(crc_), said);
    throw archive_error(numbered() + " is damaged: the masked CRC32C of its " + std::to_string(size_) + " bytes is " +
                            text + " as it says",
                        where{object_.shown(), packed() ? frame_ : begin_, {}});
  }
  const std::uint64_t bytes = size_ + shard_index::tfrecord_head + shard_index::tfrecord_tail;
  close(begin_ + shard_index::tfrecord_head);
  begin_ += bytes;
}

MILLRACE_INLINE void record_index_builder::add_recordio(std::string_view piece) {
  while (!piece.empty()) {
    std::size_t taken = 0;
    if (left_ > 0) {
      taken = static_cast<std::size_t>(std::min<std::uint64_t>(left_, piece.size()));
      left_ -= taken;
    } else if (padding_ > 0) {
      taken = std::min(padding_, piece.size());
      padding_ -= taken;
    } else {
      if (word_bytes_ == 0 && !more_parts_) begin_ = at_;
      taken = std::min(shard_index::recordio_head - word_bytes_, piece.size());
      std::memcpy(word_ + word_bytes_, piece.data(), taken);
      word_bytes_ += taken;
    }
    if (in_record_ || word_bytes_ > 0) {
      crc_ = crc32c(crc_, piece.data(), taken);
      size_ += taken;
    }
    at_ += taken;
    piece.remove_prefix(taken);
    if (word_bytes_ == shard_index::recordio_head) begin_part();
    if (in_record_ && left_ == 0 && !more_parts_) {
      in_record_ = false;
      close(begin_);
    }
  }
}

/// Its head has come.
MILLRACE_INLINE void record_index_builder::begin_part() {
  const std::string_view head(word_, shard_index::recordio_head);
  const where at{object_.shown(), packed() ? frame_ : begin_, {}};
  if (read_le(head, 0, 4) != recordio_magic) {
    throw archive_error(numbered() + " is damaged: a part of it does not begin with the bytes 0a 23 d7 ce" +
                            (begin_ == 0 ? ", or this is no RecordIO file" : ""),
                        at);
  }
  const std::uint64_t word = read_le(head, 4, 4);
  const std::uint64_t kind = word >> 29;  // 0: a whole record; 1, 2, 3: its first part, one between, its last part
  if (kind > 3 || (kind >= 2) != more_parts_) {
    const char* const reason = more_parts_ ? " ends before its last part" : " begins with a part of another one";
    throw archive_error(numbered() + reason, at);
  }
  word_bytes_ = 0;
  in_record_ = true;
  more_parts_ = kind == 1 || kind == 2;
  left_ = word & 0x1fffffffU;
  padding_ = static_cast<std::size_t>(-left_ % 4);
  const std::uint64_t end = at_ + left_ + padding_;
  if (!packed() && object_.size && end > *object_.size) {
    throw archive_error(numbered() + " has a part that ends at byte " + std::to_string(end) +
                            ", by its length, and the object ends at byte " + std::to_string(*object_.size),
                        at);
  }
  if (size_ + left_ + padding_ > UINT32_MAX) {
    throw decode_error(numbered() + " has 4 GiB or more: an index has shorter records", at);
  }
}

MILLRACE_INLINE bytes recordio_data(const bytes& parts, const where& at) {
  const std::string_view all = parts.view();
  std::string joined;
  for (std::size_t next = 0;;) {
    constexpr std::size_t head = 8;
    const bool whole = all.size() - next >= head && read_le(all, next, 4) == recordio_magic;
    const std::uint64_t word = whole ? read_le(all, next + 4, 4) : 0;
    const auto size = static_cast<std::size_t>(word & 0x1fffffffU);
    if (!whole || size > all.size() - next - head) {
      throw archive_error("a part of the record is not where the index says", at);
    }
    next += head;
    const bool last = next + size == all.size();
    if (next == head && last) return parts.slice(head, size);
    joined += all.substr(next, size);
    if (last) return bytes::copy(joined);
    // The bytes of the beginning of a part, which the data have here, too.
    for (std::uint32_t magic = recordio_magic, k = 0; k < 4; ++k, magic >>= 8) joined += static_cast<char>(magic & 255);
    next = std::min(next + size + static_cast<std::size_t>(-size % 4), all.size());
  }
}

MILLRACE_INLINE void record_index_builder::close(std::uint64_t offset) {
  shard_index::record_row row;
  row.offset = offset;
  row.size = static_cast<std::uint32_t>(size_);
  row.crc = crc_;
  index_.rows_.records.push_back(row);
  size_ = 0;
  crc_ = 0;
  cr_ = false;
}

MILLRACE_INLINE shard_index record_index_builder::finish(std::uint64_t size, std::string etag) {
  if (packed() && !unpacker_->between_frames()) {
    throw archive_error(std::string("the object ends in the middle of this frame of ") + frames_name(kind_),
                        where{object_.shown(), frame_, {}});
  }
  for (std::vector<std::uint64_t>* const frames : {&index_.frames_, &groups_}) {
    if (packed() && at_ != frames->back()) frames->insert(frames->end(), {frame_, at_});
  }
  const bool lines = index_.format_ == sample_format::lines;
  const bool cut = index_.format_ == sample_format::tfrecord
                       ? at_ != begin_
                       : left_ > 0 || padding_ > 0 || more_parts_ || word_bytes_ > 0;
  if (!lines && cut) {
    throw archive_error("the object ends in the middle of " + numbered() + ": " + std::to_string(at_ - begin_) +
                            " bytes of it are there",
                        where{object_.shown(), packed() ? frame_ : begin_, {}});
  }
  if (lines && (size_ != 0 || cr_)) close(begin_);
  if (begin_ >> 48 != 0) {
    throw index_error(std::string("too long for an index of ") + (lines ? "lines" : "records"),
                      where{object_.shown(), begin_, {}});
  }
  if (in_groups_) {
    for (std::size_t g = 0; g < groups_.size() / 2 - 1; ++g) check_group(g, groups_[2 * g + 3]);
    index_.frames_ = std::move(groups_);
    index_.flags_ |= shard_index::in_groups;
  }
  index_.rows_.records.shrink_to_fit();
  index_.object_size_ = size;
  index_.etag_ = std::move(etag);
  return std::move(index_);
}

}  // namespace millrace::detail
