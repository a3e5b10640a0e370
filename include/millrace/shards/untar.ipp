// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/shards/detail/unpack_ahead.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/archive_reader.hpp>
#include <millrace/tar/reader.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Reads an unpacked object as a tar, and any other one by its kind.
class object_reader {
 public:
  object_reader(const unpacked_chunk& first, const tar::archive_options& options, std::optional<std::uint64_t> begin) {
    const shard& s = *first.from;
    tar::archive_options own = options;
    if (begin) own.members.start = *begin;
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
  std::optional<std::uint64_t> resume_at() const noexcept {
    return plain_ ? std::optional<std::uint64_t>() : archive_->resume_at();
  }
  std::string_view warning() const noexcept { return plain_ ? plain_->warning() : archive_->warning(); }

 private:
  std::optional<tar::reader> plain_;
  std::optional<tar::archive_reader> archive_;
};

inline tar::format archive_format(std::string_view head, const shard& of) {
  const tar::format kind = tar::detect(head);
  const std::string coding = coding_of(of, head);
  if (coding.empty()) return kind;
  const bool several = coding.find(',') != std::string::npos;
  if (kind == tar::format::unknown && text::equal_ignoring_case(coding, "deflate")) return tar::format::deflate;
  if (kind != tar::format::unknown && !several) return kind;
  throw archive_error("its Content-Encoding is " + coding +
                          (several ? ": one layer is unpacked, not more" : ": it is not unpacked"),
                      where{of.shown(), 0, std::string()});
}
inline tar::format tar_format(std::string_view, const shard&) { return tar::format::tar; }

MILLRACE_COROUTINE_BODY async_generator<member> untar_members(async_generator<chunk> in, tar::archive_options options,
                                                              unpack_place unpack) {
  auto open = [options](const unpacked_chunk& first, std::uint64_t budget, std::optional<std::uint64_t> begin) {
    tar::archive_options own = options;
    own.members.budget_bytes = budget;
    return object_reader(first, own, begin);
  };
  // In the middle there is nothing to recognise, and only a plain tar can be entered there.
  const format_of_head look = options.members.start != 0 ? &tar_format : &archive_format;
  return untar_chunks(unpack_objects(std::move(in), look, tar::detect_bytes, options, unpack), std::move(open));
}

}  // namespace millrace::detail
