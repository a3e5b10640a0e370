// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/index/detail/line_index.hpp>
#include <millrace/records/detail/text_format.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::detail {

MILLRACE_INLINE line_index_builder::line_index_builder(std::string name, shard object, std::string_view head,
                                                       std::size_t longest, std::uint64_t least_frame)
    : object_(std::move(object)),
      longest_(longest < UINT32_MAX ? longest : UINT32_MAX - 1),
      least_frame_(least_frame) {
  const tar::format kind = text_format(head, object_);
  if (kind == tar::format::gzip || kind == tar::format::zstd) {
    unpacker_ = std::make_unique<frame_unpacker>(kind, object_);
    kind_ = kind;
    index_.frames_ = {0, 0};
  } else if (kind != tar::format::unknown) {
    throw decode_error(std::string("this is ") + tar::format_name(kind) +
                           " data, of which no line can be read alone: write it as frames of zstd, `split -C 4M "
                           "--filter=zstd`, unpack it, or read it as a stream, by shard_epochs() and lines()",
                       where{object_.shown(), 0, {}});
  }
  index_.name_ = std::move(name);
  index_.format_ = sample_format::lines;
  index_.flags_ = shard_index::with_keys | shard_index::with_checksums;
}

MILLRACE_INLINE void line_index_builder::add(std::string_view piece) {
  if (packed()) return unpack(piece);
  add_text(piece);
}

MILLRACE_INLINE void line_index_builder::unpack(std::string_view piece) {
  const std::string kind = tar::format_name(kind_);
  while (!piece.empty() || unpacker_->more()) {
    const std::size_t before = piece.size();
    const std::string_view text = unpacker_->next(piece);
    packed_at_ += before - piece.size();
    if (!unpacker_->wrong().empty()) {
      throw archive_error("the frame of " + kind + " that begins here is damaged: " + unpacker_->wrong() +
                              ", after byte " + std::to_string(at_ + text.size()) + " of the text",
                          where{object_.shown(), frame_, {}});
    }
    add_text(text);
    if (at_ - frame_text_ > most_frame_text) {
      const char* const how = kind_ == tar::format::gzip ? "`bgzip`" : "`split -C 4M --filter=zstd`";
      throw decode_error("this frame of " + kind + " has more than 16 MiB of text, and a line cannot be read without "
                             "all of it: write frames of some MiB (" + how + "), unpack it, or read it as a stream, by "
                             "shard_epochs() and lines()",
                         where{object_.shown(), frame_, {}});
    }
    if (!unpacker_->between_frames()) continue;
    frame_ = packed_at_;
    frame_text_ = at_;
    if (at_ - index_.frames_.back() >= least_frame_) index_.frames_.insert(index_.frames_.end(), {frame_, at_});
  }
}

MILLRACE_INLINE void line_index_builder::add_text(std::string_view piece) {
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    const std::string_view part = piece.substr(0, end);
    take(part);
    at_ += part.size();
    if (end == std::string_view::npos) return;
    close();
    begin_ = ++at_;
    piece.remove_prefix(end + 1);
  }
}

MILLRACE_INLINE void line_index_builder::take(std::string_view part) {
  if (part.empty()) return;
  if (size_ + (cr_ ? 1 : 0) + part.size() > longest_) {
    throw decode_error("line " + std::to_string(index_.rows_.lines.size()) + " is longer than " +
                           std::to_string(longest_) + " bytes",
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

MILLRACE_INLINE void line_index_builder::close() {
  shard_index::line_row row;
  row.offset = begin_;
  row.size = static_cast<std::uint32_t>(size_);
  row.crc = crc_;
  index_.rows_.lines.push_back(row);
  size_ = 0;
  crc_ = 0;
  cr_ = false;
}

MILLRACE_INLINE shard_index line_index_builder::finish(std::uint64_t size, std::string etag) {
  if (packed() && !unpacker_->between_frames()) {
    throw archive_error(std::string("the object ends in the middle of this frame of ") + tar::format_name(kind_),
                        where{object_.shown(), frame_, {}});
  }
  if (packed() && at_ != index_.frames_.back()) index_.frames_.insert(index_.frames_.end(), {frame_, at_});
  if (size_ != 0 || cr_) close();
  if (begin_ >> 48 != 0) throw index_error("too long for an index of lines", where{object_.shown(), begin_, {}});
  index_.rows_.lines.shrink_to_fit();
  index_.object_size_ = size;
  index_.etag_ = std::move(etag);
  return std::move(index_);
}

}  // namespace millrace::detail
