// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/detail/unpack_objects.hpp>
#include <millrace/tar/archive_options.hpp>
#include <millrace/tar/format.hpp>

namespace millrace {

MILLRACE_INLINE std::size_t byte_size(const line_batch& b) noexcept {
  std::size_t total = 0;
  for (std::string_view l : b.lines) total += l.size();
  return total;
}

MILLRACE_INLINE origin line_batch::origin_of(std::size_t i) const {
  const auto behind = std::upper_bound(runs_.begin(), runs_.end(), i,
                                       [](std::size_t line, const run& r) { return line < r.first; });
  if (behind == runs_.begin() || i >= lines.size()) return from;
  const run& r = *std::prev(behind);
  origin at = r.at;
  at.offset += static_cast<std::uint64_t>(lines[i].data() - r.begin);
  at.ordinal += i - r.first;
  return at;
}

namespace detail {

/// Cuts chunks at line feeds. A line that straddles pieces is copied once, into memory of its own.
class line_splitter {
 public:
  explicit line_splitter(const lines_options& options) : options_(options) {}

  /// Takes a piece; lines that end in it can then be asked for.
  void feed(chunk&& c);
  /// Appends lines of the piece to `b` until it is full; false when the piece is used up first.
  bool fill(line_batch& b);

 private:
  void add(line_batch& b, std::string_view line);
  void add_carried(line_batch& b);
  void check(std::size_t length) const;

  const lines_options options_;
  std::shared_ptr<const shard> from_;
  bytes piece_;
  std::size_t at_ = 0;
  bool last_ = false;
  bool retained_ = false;
  bool apart_ = true;  // the next line does not lie behind the last one
  std::string carry_;
  std::uint64_t position_ = 0;  // of the next line in the shard
  std::uint64_t ordinal_ = 0;
};

MILLRACE_INLINE void line_splitter::feed(chunk&& c) {
  if (from_ != c.from) {
    from_ = std::move(c.from);
    position_ = 0;
    ordinal_ = 0;
  }
  piece_ = std::move(c.data);
  at_ = 0;
  last_ = c.last;
  retained_ = false;
  apart_ = true;
}

MILLRACE_INLINE bool line_splitter::fill(line_batch& b) {
  while (b.lines.size() < options_.batch) {
    const char* const begin = piece_.data() + at_;
    const std::size_t left = piece_.size() - at_;
    const auto* end = left == 0 ? nullptr : static_cast<const char*>(std::memchr(begin, '\n', left));
    if (end == nullptr) {
      carry_.append(begin, left);
      at_ = piece_.size();
      check(carry_.size());
      if (last_ && !carry_.empty()) add_carried(b);  // the last line needs no line feed
      return false;
    }
    const auto length = static_cast<std::size_t>(end - begin);
    if (!carry_.empty()) {
      carry_.append(begin, length);
      check(carry_.size());
      add_carried(b);
      position_ += 1;
    } else {
      check(length);
      if (!retained_) {
        b.retain(piece_);
        retained_ = true;
      }
      add(b, std::string_view(begin, length));
      position_ += length + 1;
    }
    at_ += length + 1;
  }
  retained_ = false;  // the next batch retains the piece anew
  return true;
}

MILLRACE_INLINE void line_splitter::add(line_batch& b, std::string_view line) {
  if (b.lines.empty()) b.from = origin(from_, position_, ordinal_);
  if (b.lines.empty() || apart_) b.runs_.emplace_back(b.lines.size(), line.data(), origin(from_, position_, ordinal_));
  apart_ = false;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  b.lines.push_back(line);
  ++ordinal_;
}

MILLRACE_INLINE void line_splitter::add_carried(line_batch& b) {
  bytes own = bytes::copy(carry_);
  const std::size_t length = carry_.size();
  carry_.clear();
  apart_ = true;
  add(b, own.view());
  apart_ = true;
  b.retain(std::move(own));
  position_ += length;
}

MILLRACE_INLINE void line_splitter::check(std::size_t length) const {
  if (length > options_.max_line) {
    throw decode_error("a line is longer than " + std::to_string(options_.max_line) + " bytes",
                       origin(from_, position_, ordinal_).at());
  }
}

/// As many as bzip2 takes to be told from text.
inline constexpr std::size_t text_head_bytes = 10;

/// No text begins like compressed data.
MILLRACE_INLINE tar::format text_format(std::string_view head, const shard& of) {
  const tar::format kind = tar::detect(head);
  switch (kind) {
    case tar::format::bzip2: {  // "BZh" may be somebody's name: a block, or the end, must follow
      const std::string_view rest = head.substr(std::min<std::size_t>(4, head.size()));
      return rest == "1AY&SY" || rest == "\x17\x72\x45\x38\x50\x90" ? kind : tar::format::unknown;
    }
    case tar::format::zip:
    case tar::format::seven_zip:
      throw decode_error(std::string("this is a ") + tar::format_name(kind) + " archive and no text",
                         where{of.shown(), 0, std::string()});
    default:
      return kind;
  }
}

MILLRACE_COROUTINE_BODY async_generator<line_batch> split_lines(async_generator<chunk> in, lines_options options,
                                                                unpack_place place) {
  line_splitter splitter(options);
  line_batch b;
  tar::archive_options limits;
  auto pieces = unpack_objects(std::move(in), &text_format, text_head_bytes, limits, place);
  while (auto c = co_await pieces.next()) {
    splitter.feed(std::move(*c));
    c.reset();
    while (splitter.fill(b)) {
      co_yield give(b);
      b = line_batch();
      b.lines.reserve(options.batch);
    }
  }
  if (!b.lines.empty()) co_yield give(b);
}

}  // namespace detail
}  // namespace millrace
