// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/formats/detail/record_scanner.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE record_scanner::record_scanner(const shard_format& format, std::string name, shard object,
                                               frame_bounds frames)
    : index_(format, std::move(name)), object_(std::move(object)), bounds_(frames) {}

MILLRACE_INLINE void record_scanner::begin(std::string_view head, std::optional<std::uint64_t> /*total*/,
                                           std::size_t /*part*/) {
  const tar::format kind = compression(head.substr(0, tar::detect_bytes));
  if (kind == tar::format::gzip || kind == tar::format::zstd || kind == tar::format::deflate) {
    unpacker_ = make_frame_unpacker(kind, object_);
    kind_ = kind;
    frames_ = groups_ = {0, 0};
  } else if (kind != tar::format::unknown) {
    throw decode_error(std::string("this is ") + tar::format_name(kind) + " data, of which no " + unit() +
                           " can be read alone: " + other_way(),
                       where{object_.shown(), 0, {}});
  }
}

MILLRACE_INLINE void record_scanner::add(const bytes& piece) {
  if (packed()) return unpack(piece.view());
  add_text(piece.view());
}

MILLRACE_INLINE void record_scanner::unpack(std::string_view piece) {
  const std::string kind = frames_name(kind_);
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
    if (!makes_groups() && at_ - frame_text_ > most_frame_text) {
      throw decode_error("this frame of " + kind + " has more than 16 MiB of text, and a " + unit() +
                             " cannot be read without all of it: write frames of some MiB (" +
                             (kind_ == tar::format::gzip ? "`bgzip`" : "`split -C 4M --filter=zstd`") +
                             "), unpack it, or read it as a stream, by shard_epochs() and lines()",
                         where{object_.shown(), frame_, {}});
    }
    in_groups_ = in_groups_ || (makes_groups() && at_ - frame_text_ > bounds_.grouped);
    if (in_groups_) check_group(groups_.size() / 2 - 1, at_);
    if (unpacker_->between_frames()) end_frame();
  }
}

/// Group `g`, which ends at byte `end` of the text.
MILLRACE_INLINE void record_scanner::check_group(std::size_t g, std::uint64_t end) const {
  if (end - groups_[2 * g + 1] <= bounds_.most_group) return;
  throw decode_error(std::string("the frames of ") + frames_name(kind_) + " that begin here have more than " +
                         std::to_string(bounds_.most_group) +
                         " bytes of records, which are read together, as none can be read without all of its frame: "
                         "unpack the object, or write it as frames of some MiB, or as several objects",
                     where{object_.shown(), groups_[2 * g], {}});
}

MILLRACE_INLINE void record_scanner::end_frame() {
  frame_ = packed_at_;
  frame_text_ = at_;
  if (at_ - frames_.back() >= bounds_.least) frames_.insert(frames_.end(), {frame_, at_});
  if (at_ != groups_.back() && at_ - groups_.back() >= bounds_.least && between_records()) {
    groups_.insert(groups_.end(), {frame_, at_});
  }
}

MILLRACE_INLINE std::string record_scanner::numbered() const {
  std::string name = "record " + std::to_string(index_.samples());
  if (packed()) name += ", at byte " + std::to_string(begin_) + " of what the object is unpacked to,";
  return name;
}

MILLRACE_INLINE void record_scanner::check_end(std::uint64_t end, const char* part) const {
  if (packed() || !object_.size || end <= *object_.size) return;
  throw archive_error(numbered() + part + " at byte " + std::to_string(end) + ", by its length, and the object ends at "
                          "byte " + std::to_string(*object_.size),
                      place());
}

MILLRACE_INLINE void record_scanner::close(std::uint64_t offset) {
  index_.add(offset, size_, crc_);
  size_ = 0;
  crc_ = 0;
}

MILLRACE_INLINE shard_index record_scanner::finish(std::uint64_t size, std::string etag) {
  if (packed() && !unpacker_->between_frames()) {
    throw archive_error(std::string("the object ends in the middle of this frame of ") + frames_name(kind_),
                        where{object_.shown(), frame_, {}});
  }
  for (std::vector<std::uint64_t>* const places : {&frames_, &groups_}) {
    if (packed() && at_ != places->back()) places->insert(places->end(), {frame_, at_});
  }
  end_text();
  for (std::size_t g = 0; in_groups_ && g < groups_.size() / 2 - 1; ++g) check_group(g, groups_[2 * g + 3]);
  if (packed()) index_.frames(std::move(in_groups_ ? groups_ : frames_), in_groups_);
  return index_.finish(size, std::move(etag), true);
}

MILLRACE_INLINE tar::format compression_of_records(std::string_view head, const shard& of, const char* file) {
  const tar::format kind = tar::detect(head);
  if (kind == tar::format::unknown && begins_zlib(head)) return tar::format::deflate;
  if (kind == tar::format::tar || kind == tar::format::zip || kind == tar::format::seven_zip) {
    throw decode_error(std::string("this is a ") + tar::format_name(kind) + " archive and no " + file,
                       where{of.shown(), 0, {}});
  }
  return kind;
}

MILLRACE_INLINE void record_reader::fill(sample& s, const shard_index::rows& /*rows*/, std::size_t /*number*/,
                                         const bytes& record) const {
  s.fields.emplace_back(field_, record);
}

MILLRACE_INLINE unpacked_group record_reader::unpack(const shard& object, std::size_t g,
                                                     const std::vector<bytes>& parts) const {
  return unpacked_group(unpack_all_frames(object, index_.group(g), parts.front(), index_.group_text_end(g)));
}

}  // namespace millrace::detail
