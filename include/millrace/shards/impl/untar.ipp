// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/shards/detail/unpack_objects.hpp>
#include <millrace/shards/detail/untar_chunks.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/archive_reader.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace::detail {

/// Reads what is unpacked as a tar, and finds out what else it is.
class object_reader {
 public:
  object_reader(const unpacked_chunk& first, const tar::archive_options& options) {
    const shard& s = *first.from;
    tar::archive_options own = options;
    if (first.packed) {
      own.members.object_bytes = 0;  // that is the compressed size
      plain_.emplace(s.shown(), own.members);
    } else {
      if (s.size) own.members.object_bytes = *s.size;
      archive_.emplace(s.shown(), own);
    }
  }
  void feed(bytes piece) { plain_ ? plain_->feed(std::move(piece)) : archive_->feed(std::move(piece)); }
  bool next(tar::entry& out) { return plain_ ? plain_->next(out) : archive_->next(out); }
  void finish() { plain_ ? plain_->finish() : archive_->finish(); }
  std::string_view warning() const noexcept { return plain_ ? plain_->warning() : archive_->warning(); }

 private:
  std::optional<tar::reader> plain_;
  std::optional<tar::archive_reader> archive_;
};

inline tar::format archive_format(std::string_view head, const shard&) { return tar::detect(head); }
inline tar::format tar_format(std::string_view, const shard&) { return tar::format::tar; }

MILLRACE_COROUTINE_BODY async_generator<member> untar_members(async_generator<chunk> in, tar::archive_options options,
                                                              unpack_place unpack) {
  auto open = [options](const unpacked_chunk& first) { return object_reader(first, options); };
  // In the middle there is nothing to recognise, and only a plain tar can be entered there.
  const format_of_head look = options.members.start != 0 ? &tar_format : &archive_format;
  return untar_chunks(unpack_objects(std::move(in), look, tar::detect_bytes, options, unpack), std::move(open),
                      options.members.report);
}

}  // namespace millrace::detail
