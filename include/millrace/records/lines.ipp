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
#include <millrace/coro/run_context.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/records/detail/text_format.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/detail/unpack_ahead.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::size_t byte_size(const line_batch& b) noexcept {
  std::size_t total = 0;
  for (std::string_view l : b.lines) total += l.size();
  return total;
}

MILLRACE_INLINE origin line_batch::origin_of(std::size_t i) const {
  if ((begin_ == nullptr && runs_.empty()) || i >= lines.size()) return from;
  const auto behind = std::upper_bound(runs_.begin(), runs_.end(), i,
                                       [](std::size_t line, const run& r) { return line < r.first; });
  const run* const r = behind == runs_.begin() ? nullptr : &*std::prev(behind);
  origin at = r == nullptr ? from : r->at;
  at.offset += static_cast<std::uint64_t>(lines[i].data() - (r == nullptr ? begin_ : r->begin));
  at.ordinal += i - (r == nullptr ? 0 : r->first);
  return at;
}

namespace detail {

/// Cuts chunks at line feeds. A line that straddles pieces is copied once, into memory of its own.
class line_splitter {
 public:
  /// `budget`: of the run, no line may be longer.
  line_splitter(const lines_options& options, std::size_t budget) : options_(options), budget_(budget) {}

  /// Takes a piece; lines that end in it can then be asked for.
  void feed(chunk&& c);
  /// Appends lines of the piece to `b` until it is full; false when the piece is used up first.
  bool fill(line_batch& b);

 private:
  void add(line_batch& b, std::string_view line);
  void add_carried(line_batch& b);
  void check(std::size_t length) const;

  const lines_options options_;
  const std::size_t budget_;
  std::shared_ptr<const shard> from_;
  bytes piece_;
  std::size_t at_ = 0;
  bool last_ = false;
  bool begins_ = false;  // its first bytes are still to come
  bool retained_ = false;
  bool apart_ = true;  // the next line does not follow the last one in memory
  std::string carry_;
  std::uint64_t position_ = 0;  // of the next line in the shard
  std::uint64_t ordinal_ = 0;
};

MILLRACE_INLINE void line_splitter::feed(chunk&& c) {
  if (from_ != c.from) {
    from_ = std::move(c.from);
    position_ = 0;
    ordinal_ = 0;
    begins_ = true;
  }
  if (begins_ && c.data.size() != 0) {  // of compressed data, its contents
    begins_ = false;
    const bool whole = c.data.size() >= tar::detect_bytes;
    if (whole && tar::detect(c.data.view()) == tar::format::tar) throw no_text(tar::format::tar, *from_);
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
  if (b.lines.empty()) {
    b.from = origin(from_, position_, ordinal_);
    b.begin_ = line.data();
  } else if (apart_) {
    b.runs_.emplace_back(b.lines.size(), line.data(), origin(from_, position_, ordinal_));
  }
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
  if (length > budget_) {
    throw decode_error(run_budget::too_large("the line's first", length, budget_),
                       origin(from_, position_, ordinal_).at());
  }
}

MILLRACE_COROUTINE_BODY async_generator<line_batch> split_lines(async_generator<chunk> in, lines_options options,
                                                                unpack_place place) {
  const coroutine_context here = co_await this_context();
  line_splitter splitter(options, here.run().budget().largest_item());
  line_batch b;
  tar::archive_options limits;
  limits.max_ratio = options.max_ratio;
  limits.max_window_bytes = options.max_window_bytes;
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

/// Takes batches apart and puts them together.
class line_mover {
 public:
  /// Line `i` in memory of its own: it keeps no slab.
  static line_batch alone(const line_batch& from, std::size_t i) {
    line_batch one;
    bytes own = bytes::copy(from.lines[i]);
    one.from = from.origin_of(i);
    one.lines.push_back(own.view());
    one.begin_ = own.data();
    one.retain(std::move(own));
    return one;
  }
  static void append(line_batch& to, line_batch&& one) {
    if (to.lines.empty()) {
      to.from = std::move(one.from);
      to.begin_ = one.begin_;
    } else {
      to.runs_.emplace_back(to.lines.size(), one.begin_, std::move(one.from));
    }
    to.lines.push_back(one.lines.front());
    to.retain(std::move(one.first_memory_));
  }
};

MILLRACE_COROUTINE_BODY async_generator<line_batch> single_lines(async_generator<line_batch> in,
                                                                 std::shared_ptr<std::size_t> largest) {
  while (auto b = co_await in.next()) {
    *largest = std::max(*largest, b->size());
    for (std::size_t i = 0; i < b->size(); ++i) {
      line_batch one = line_mover::alone(*b, i);
      co_yield give(one);
    }
  }
}

/// Batches have as many lines as the largest one before the shuffle.
MILLRACE_COROUTINE_BODY async_generator<line_batch> joined_lines(async_generator<line_batch> in,
                                                                 std::shared_ptr<std::size_t> largest) {
  line_batch all;
  while (auto one = co_await in.next()) {
    line_mover::append(all, std::move(*one));
    if (all.size() < *largest) continue;
    co_yield give(all);
    all = line_batch();
  }
  if (!all.lines.empty()) co_yield give(all);
}

}  // namespace detail

MILLRACE_COROUTINE_BODY stream<line_batch> shuffle_parts(async_generator<line_batch>&& source,
                                                         const shuffle_options& options) {
  auto largest = std::make_shared<std::size_t>(0);
  async_generator<line_batch> lines = detail::single_lines(std::move(source), largest);
  lines = detail::shuffle_items<line_batch>(std::move(lines), options);
  return stream<line_batch>(detail::joined_lines(std::move(lines), std::move(largest)));
}

}  // namespace millrace
