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
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/detail/unpack_ahead.hpp>
#include <millrace/tar/detail/other_kinds.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>
#include <millrace/text/text.hpp>

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

/// What lines() says of an archive.
decode_error no_text(tar::format kind, const shard& of);

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
  if (begins_ && c.data.size() != 0) {  // of compressed data this is what is in it
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
  if (length > budget_) {
    throw decode_error(run_budget::too_large("the line's first", length, budget_),
                       origin(from_, position_, ordinal_).at());
  }
}

/// What an object's name says about its compression: the format, if it is one that is unpacked.
struct named_compression {
  std::string_view ending;
  tar::format kind;
  std::string_view begin;  // of all such data
};

/// Of an object whose name ends so; null where the name says nothing.
MILLRACE_INLINE const named_compression* compression_by_name(std::string_view name) noexcept {
  using namespace std::string_view_literals;
  using tar::format;
  static constexpr named_compression all[] = {
      {"gz"sv, format::gzip, "\x1f\x8b"sv},          {"bz2"sv, format::bzip2, "BZh"sv},
      {"xz"sv, format::xz, "\xfd\x37zXZ\0"sv},       {"zst"sv, format::zstd, "\x28\xb5\x2f\xfd"sv},
      {"lz4"sv, format::lz4, "\x04\x22\x4d\x18"sv}, {"lzma"sv, format::lzma, "\x5d\0\0"sv},
      {"br"sv, format::unknown, ""sv},              {"z"sv, format::unknown, ""sv},
      {"lz"sv, format::unknown, ""sv},              {"lzo"sv, format::unknown, ""sv},
      {"snappy"sv, format::unknown, ""sv},          {"deflate"sv, format::deflate, ""sv},
      {"zz"sv, format::deflate, ""sv},
  };
  for (const named_compression& c : all) {
    const std::size_t dot = name.rfind('.');
    if (dot != std::string_view::npos && text::equal_ignoring_case(name.substr(dot + 1), c.ending)) return &c;
  }
  return nullptr;
}

/// The name of the format that these few bytes are the beginning of, if they are too short to be complete; null for
/// text.
MILLRACE_INLINE const char* cut_in_first_bytes(std::string_view whole) noexcept {
  using namespace std::string_view_literals;
  const auto begins = [whole](std::string_view magic) {
    return !whole.empty() && whole.size() < magic.size() && magic.substr(0, whole.size()) == whole;
  };
  if (begins("\x1f\x8b"sv)) return "gzip";
  if (begins("\xfd\x37zXZ\0"sv)) return "xz";
  if (whole.size() > 1 && begins("\x28\xb5\x2f\xfd"sv)) return "zstd";
  if (begins("\x04\x22\x4d\x18"sv)) return "lz4";
  if (whole.size() > 1 && whole.size() < 14 && whole.substr(0, 2) == "\x5d\0"sv) return "lzma";
  // "BZh9": more of it has no other meaning.
  if (whole.size() >= 4 && whole.size() < 10 && whole.substr(0, 3) == "BZh"sv &&
      ("1AY&SY"sv.substr(0, whole.size() - 4) == whole.substr(4) ||
       "\x17\x72\x45\x38\x50\x90"sv.substr(0, whole.size() - 4) == whole.substr(4))) {
    return "bzip2";
  }
  return nullptr;
}

inline constexpr std::size_t text_head_bytes = tar::detect_bytes;

/// For an object that does not begin like known compressed data: whether its name says that it is compressed, and its
/// bytes do not look like text.
MILLRACE_INLINE tar::format unnamed_text(std::string_view head, const shard& of) {
  const where at{of.shown(), 0, std::string()};
  const std::string_view other = tar::detail::other_compression(head);
  if (!other.empty()) throw decode_error("this is " + std::string(other) + " data, which are not unpacked here", at);
  if (const char* const cut = cut_in_first_bytes(head)) {
    throw archive_error("the object ends within the first bytes of " + std::string(cut) + " data", at);
  }
  const bool plain = tar::detail::looks_like_text(head);
  const std::string coding = tar::detail::content_coding(of.encoding);
  if (!coding.empty() && !head.empty() && !plain) {
    if (text::equal_ignoring_case(coding, "deflate")) return tar::format::deflate;
    throw decode_error("its Content-Encoding is " + coding + ": it is not unpacked", at);
  }
  if (!coding.empty() && plain) {
    say_first("text with a Content-Encoding",
              "its Content-Encoding is " + coding + ", but its bytes are text: taken as they are", at);
  }
  const std::string name = of.shown();
  const named_compression* const said = compression_by_name(name);
  if (said == nullptr) return tar::format::unknown;
  const std::string ending = "." + std::string(said->ending);
  if (head.empty()) throw archive_error("the object is empty, though its name ends in " + ending, at);
  if (head.size() <= said->begin.size() && said->begin.substr(0, head.size()) == head) {
    throw archive_error("the object ends within the first bytes of " + ending + " data", at);
  }
  if (plain) {
    say_first("text with the name of a compression",
              "its name ends in " + ending + ", but its bytes are text: taken as they are", at);
    return tar::format::unknown;
  }
  if (said->kind == tar::format::deflate) return said->kind;
  if (said->kind == tar::format::unknown) {
    throw decode_error("its name ends in " + ending + ": such data are not unpacked here", at);
  }
  throw archive_error("its name ends in " + ending + ", but it does not begin as such data do", at);
}

MILLRACE_INLINE decode_error no_text(tar::format kind, const shard& of) {
  const bool read = kind != tar::format::seven_zip;
  return decode_error(std::string("this is a ") + tar::format_name(kind) + " archive and no text" +
                          (read ? ": read it by untar()" : ""),
                      where{of.shown(), 0, std::string()});
}

/// No text begins like compressed data.
MILLRACE_INLINE tar::format text_format(std::string_view head, const shard& of) {
  const tar::format kind = tar::detect(head);
  switch (kind) {
    case tar::format::bzip2: {  // "BZh" may be text: a block, or the end, must follow
      const std::string_view rest = head.substr(std::min<std::size_t>(4, head.size()), 6);
      if (rest == "1AY&SY" || rest == "\x17\x72\x45\x38\x50\x90") return kind;
      return unnamed_text(head, of);
    }
    case tar::format::tar:
    case tar::format::zip:
    case tar::format::seven_zip:
      throw no_text(kind, of);
    case tar::format::unknown:
      return unnamed_text(head, of);
    default:
      if (const std::string coding = tar::detail::content_coding(of.encoding); coding.find(',') != std::string::npos) {
        throw decode_error("its Content-Encoding is " + coding + ": one layer is unpacked, not more",
                           where{of.shown(), 0, std::string()});
      }
      return kind;
  }
}

MILLRACE_COROUTINE_BODY async_generator<line_batch> split_lines(async_generator<chunk> in, lines_options options,
                                                                unpack_place place) {
  const coroutine_context here = co_await this_context();
  line_splitter splitter(options, here.run().budget().largest_item());
  line_batch b;
  tar::archive_options limits;
  limits.max_ratio = options.max_ratio;
  limits.free_bytes = options.free_bytes;
  limits.max_output_bytes = options.max_output_bytes;
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
    one.runs_.emplace_back(0, own.view().data(), one.from);
    one.retain(std::move(own));
    return one;
  }
  static void append(line_batch& to, line_batch&& one) {
    if (to.lines.empty()) to.from = one.from;
    for (line_batch::run& r : one.runs_) to.runs_.emplace_back(to.lines.size(), r.begin, std::move(r.at));
    to.lines.push_back(one.lines.front());
    for (bytes& b : one.memory_) to.memory_.push_back(std::move(b));
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

/// As many lines as the largest batch before the shuffle had.
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
