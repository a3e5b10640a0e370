// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/tar/detail/body.hpp>
#include <millrace/tar/detail/extended.hpp>
#include <millrace/tar/detail/header.hpp>
#include <millrace/tar/detail/input.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/reader_options.hpp>

namespace millrace::tar {

/// Walks a plain tar archive (v7, ustar, pax, GNU) that arrives in pieces, without copying it.
///
/// Use: feed() a piece, take members with next() until it says false, feed the next piece; after the last one finish(),
/// then next() until false once more. How the archive is cut into pieces changes nothing about what comes out, errors
/// included.
///
/// Memory: a body that lies in one piece is a slice of it and keeps it alive; one that straddles pieces is copied into
/// an allocation of its own. The reader holds on to a piece only until it has been read.
///
/// Strictness: headers must have a right checksum, numbers and pax records must parse, and every member must be whole.
/// Nothing is guessed and nothing is searched for behind a broken header. Sparse members and multi-volume archives are
/// refused. Bytes behind the end-of-archive block are ignored. Names are raw bytes; link targets and metadata are
/// checked but not reported.
///
/// Errors: archive_error with the object, the byte offset of the block or record that is wrong (for a cut archive:
/// where the input ended) and the member where it is known. After an error the reader stays broken: next() throws the
/// same again.
///
/// Not thread-safe. Copying is not possible, moving is.
class reader {
 public:
  /// `object` names the archive in errors.
  explicit reader(std::string object, reader_options options = reader_options())
      : options_(options),
        limit_(options.object_bytes != 0 && options.object_bytes < most_bytes ? options.object_bytes : most_bytes),
        in_(options.start),
        object_(std::move(object)) {}
  reader(reader&&) noexcept = default;
  reader& operator=(reader&&) noexcept = default;
  ~reader() = default;

  /// Gives the next piece of the archive, of any size. Pieces that next() has not reached yet are held.
  void feed(bytes piece) {
    if (state_ == state::end || state_ == state::failed) return;
    in_.push(std::move(piece));
  }

  /// Hands out the next member. False: more input is needed, or done(). `out` may be used again from call to call,
  /// which saves allocations; its contents are unspecified after false.
  bool next(entry& out) {
    if (MILLRACE_UNLIKELY(has_pending_)) {
      std::swap(out, pending_);
      has_pending_ = false;
      return true;
    }
    return step_or_break(out);
  }

  /// Says that no more input comes. Throws where the archive is cut short, unless complete members have not been taken
  /// yet: then next() hands them out first and throws behind them.
  void finish() {
    if (ended_) return;
    ended_ = true;
    has_pending_ = step_or_break(pending_);
  }

  /// Passes over a body that next() would pass over unseen (with reader_options::headers_only: any), and its padding. For
  /// when next() wants more input: feed() goes on at the offset that is returned; finish(), if that is not in the object.
  std::uint64_t skip() {
    if (state_ == state::skip) in_.jump(body_.jump(in_), limit_);
    if (state_ == state::header && in_.together() == 0) in_.jump(std::exchange(padding_, 0), limit_);
    return in_.offset();
  }

  /// True once no further member can come: the end-of-archive block has been read, or finish() was called and every
  /// member taken. The rest of the input, if any, need not be fetched.
  bool done() const noexcept { return state_ == state::end && !has_pending_; }

  /// What is unusual about the end of the archive, as a sentence; empty when nothing is, or before done().
  std::string_view warning() const noexcept {
    if (state_ != state::end || end_block_seen_ || in_.offset() == 0) return {};
    return lone_zero_block_ ? "only half of the end-of-archive block is there"
                            : "no end-of-archive block: the archive may have been cut between two members";
  }

 private:
  static constexpr std::uint64_t most_bytes = INT64_MAX - std::uint64_t(detail::block_bytes);
  enum class state : unsigned char { header, extended, body, skip, sparse_map, end, failed };

  bool step(entry& out);
  bool step_or_break(entry& out) {
    try {
      return step(out);
    } catch (...) {
      if (state_ != state::failed) break_off();
      throw;
    }
  }
  /// Out of memory in the middle of a member: what comes next must not be taken for a header.
  void break_off() noexcept {
    failure_ = "failed before";  // no longer than a string holds without allocating
    failed_name_.clear();
    failed_at_ = in_.offset();
    state_ = state::failed;
    in_.drop();
    body_.drop();
  }
  bool on_header(const char* block, entry& out);
  void prefetch_behind(std::uint64_t size) noexcept;
  void on_zero_block(std::uint64_t at);
  bool begin_member(const char* block, std::uint64_t size, std::uint64_t at, entry& out);
  bool begin_odd(std::uint64_t size, std::uint64_t at, entry& out);
  void resolve_old_type(std::uint64_t size, std::uint64_t at, entry& out);
  bool begin_sparse(const char* block, std::uint64_t size, std::uint64_t at, entry& out);
  bool put_off(state next, entry& out);
  bool read_extended();
  bool end_member(entry& out);
  bool walk_sparse_map();
  const char* take_block();
  bool starved();
  void check_fits(std::uint64_t size, std::uint64_t at, std::string_view name = {}) {
    const std::uint64_t begin = in_.offset();
    if (MILLRACE_UNLIKELY(begin > limit_ || size > limit_ - begin)) refuse_to_fit(size, at, name);
  }
  [[noreturn]] void refuse_to_fit(std::uint64_t size, std::uint64_t at, std::string_view name);
  [[noreturn]] void fail(std::uint64_t at, std::string_view reason, std::string_view name = {});
  [[noreturn]] void throw_failure() const { throw archive_error(failure_, where{object_, failed_at_, failed_name_}); }

  // Read or written for every member.
  state state_ = state::header;
  bool has_pending_ = false;
  bool ended_ = false;
  bool group_open_ = false;  // a header of the coming member has been read
  bool lone_zero_block_ = false;
  bool end_block_seen_ = false;
  std::uint32_t padding_ = 0;      // bytes to pass over before the next header
  std::size_t carried_ = 0;        // bytes of a header in carry_
  std::uint64_t group_start_ = 0;  // where the coming member's first header is
  reader_options options_;
  std::uint64_t limit_;  // where the last byte of a body may end
  detail::input in_;
  detail::extended_headers extended_;

  // A member that was not all there.
  entry member_;
  detail::body_collector body_;
  char carry_[detail::block_bytes];

  entry pending_;  // found by finish(), not taken yet
  std::string object_;
  std::string failure_;
  std::string failed_name_;
  std::uint64_t failed_at_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline bool reader::step(entry& out) {
  for (;;) {
    switch (state_) {
      case state::header: {
        if (padding_ != 0) {
          padding_ -= static_cast<std::uint32_t>(in_.skip(padding_));
          if (padding_ != 0) return starved();
        }
        const char* block = take_block();
        if (block == nullptr) return starved();
        if (on_header(block, out)) return true;
        break;
      }
      case state::extended:
        if (!read_extended()) return starved();
        break;
      case state::body:
        return body_.collect(in_, member_.body) ? end_member(out) : starved();
      case state::skip:
        return body_.skip(in_) ? end_member(out) : starved();
      case state::sparse_map:
        if (!walk_sparse_map()) return starved();
        break;
      case state::end:
        return false;
      case state::failed:
        throw_failure();
    }
  }
}

inline const char* reader::take_block() {
  if (MILLRACE_LIKELY(carried_ == 0 && in_.together() >= detail::block_bytes)) {
    const char* block = in_.here();
    in_.advance(detail::block_bytes);
    return block;
  }
  carried_ += in_.copy(carry_ + carried_, detail::block_bytes - carried_);
  if (carried_ != detail::block_bytes) return nullptr;
  carried_ = 0;
  return carry_;
}

MILLRACE_ALWAYS_INLINE bool reader::on_header(const char* block, entry& out) {
  const std::uint64_t at = in_.offset() - detail::block_bytes;
  const detail::number size = detail::size_field(block);
  const char type = detail::type_field(block);
  const bool extended = detail::extended_headers::is_type(type);
  if (!extended) prefetch_behind(size.value);
  const std::uint32_t sum = detail::byte_sum(block);
  if (MILLRACE_UNLIKELY(sum == 0)) {
    on_zero_block(at);
    return false;
  }
  if (MILLRACE_UNLIKELY(lone_zero_block_)) {
    if (!options_.concatenated) fail(at, "something other than the end of the archive follows a block of zeros");
    lone_zero_block_ = end_block_seen_ = false;
  }
  if (MILLRACE_UNLIKELY(!detail::checksum_matches(block, sum))) {
    fail(at, at == 0 ? "not a tar archive: the first header has a wrong checksum" : "a header has a wrong checksum");
  }
  if (MILLRACE_UNLIKELY(size.problem != nullptr)) fail(at, std::string("a header's size field ") + size.problem);
  if (!group_open_) {
    group_open_ = true;
    group_start_ = at;
  }
  if (!extended) return begin_member(block, size.value, at, out);
  if (MILLRACE_UNLIKELY(!extended_.begin(type, size.value, options_))) {
    fail(at, detail::extended_headers::refusal(type, size.value));
  }
  check_fits(size.value, at);
  state_ = state::extended;
  return false;
}

/// The headers behind a body of `size` bytes, which nobody has checked yet, are on their way from memory while this
/// member's is looked at and while the caller is busy with it.
MILLRACE_ALWAYS_INLINE void reader::prefetch_behind(std::uint64_t size) noexcept {
  const std::uint64_t body = size + detail::padding(size);
  if (in_.left() >= 3 * detail::block_bytes && in_.left() - 3 * detail::block_bytes >= body) {
    detail::prefetch_header(in_.here() + body, extended_.pending());
  }
}

MILLRACE_NOINLINE inline void reader::on_zero_block(std::uint64_t at) {
  if (extended_.pending()) fail(at, "the archive ends between an extended header and its member");
  group_open_ = false;
  end_block_seen_ = lone_zero_block_;
  lone_zero_block_ = true;
  if (end_block_seen_ && !options_.concatenated) {
    state_ = state::end;
    in_.drop();
  }
}

inline bool reader::read_extended() {
  detail::pax_problem problem;
  if (!extended_.read(in_, options_, problem)) return false;
  if (MILLRACE_UNLIKELY(problem.reason != nullptr)) fail(in_.offset() - extended_.size() + problem.at, problem.reason);
  padding_ = static_cast<std::uint32_t>(detail::padding(extended_.size()));
  state_ = state::header;
  return true;
}

MILLRACE_ALWAYS_INLINE bool reader::begin_member(const char* block, std::uint64_t size, std::uint64_t at, entry& out) {
  out.type = detail::type_field(block);
  out.header_offset = group_start_;
  out.data_offset = in_.offset();
  group_open_ = false;
  bool sparse = out.type == 'S';
  if (extended_.pending()) {
    extended_.assign_name(out.name, block);
    extended_.finish_member(size, sparse);
  } else {
    detail::assign_name(out.name, block);
  }
  if (MILLRACE_UNLIKELY(out.name.size() > options_.max_name_bytes)) fail(at, "a name is longer than max_name_bytes");
  if (MILLRACE_UNLIKELY(sparse)) return begin_sparse(block, size, at, out);
  if (MILLRACE_UNLIKELY(!out.is_regular())) {
    if (out.type == '\0') resolve_old_type(size, at, out);
    if (!out.is_regular()) return begin_odd(size, at, out);
  }
  out.size = size;
  check_fits(size, at, out.name);
  if (MILLRACE_UNLIKELY(size > options_.max_member_bytes)) {
    fail(at, "the member's " + std::to_string(size) + " bytes are more than max_member_bytes", out.name);
  }
  const std::size_t together = in_.together();
  if (MILLRACE_UNLIKELY(together < size || options_.headers_only)) return put_off(state::body, out);
  in_.take(static_cast<std::size_t>(size), out.body);
  const std::uint64_t padding = detail::padding(size);
  if (MILLRACE_LIKELY(together - size >= padding)) {
    in_.advance(static_cast<std::size_t>(padding));
  } else {
    padding_ = static_cast<std::uint32_t>(padding);
  }
  return true;
}

/// Old archives tell a directory by its name alone.
MILLRACE_NOINLINE inline void reader::resolve_old_type(std::uint64_t size, std::uint64_t at, entry& out) {
  const bool directory = !out.name.empty() && out.name.back() == '/';
  if (directory && size != 0) fail(at, "a directory of the old kind has a body", out.name);
  out.type = directory ? '5' : '0';
}

/// A member that is not a regular file.
MILLRACE_NOINLINE inline bool reader::begin_odd(std::uint64_t size, std::uint64_t at, entry& out) {
  if (out.type == 'M') fail(at, "multi-volume archives are not supported", out.name);
  if (detail::is_header_only(out.type)) size = 0;
  out.size = size;
  check_fits(size, at, out.name);
  return put_off(state::skip, out);
}

MILLRACE_NOINLINE inline bool reader::begin_sparse(const char* block, std::uint64_t size, std::uint64_t at,
                                                   entry& out) {
  if (!options_.report_sparse) fail(at, "sparse members are not supported", out.name);
  const bool has_map_blocks = out.type == 'S' && block[482] != 0;
  out.type = 'S';
  out.size = size;
  check_fits(size, at, out.name);
  return put_off(has_map_blocks ? state::sparse_map : state::skip, out);
}

/// The GNU sparse header's further map blocks, which the size field does not count.
inline bool reader::walk_sparse_map() {
  const char* block = take_block();
  if (block == nullptr) return false;
  if (block[504] == 0) {
    member_.data_offset = in_.offset();
    check_fits(member_.size, member_.header_offset, member_.name);
    state_ = state::skip;
  }
  return true;
}

/// Keeps a member until its body has been read or passed over.
MILLRACE_NOINLINE inline bool reader::put_off(state next, entry& out) {
  out.body = bytes();
  body_.begin(out.size);
  std::swap(member_, out);
  state_ = next == state::body && options_.headers_only ? state::skip : next;
  return false;
}

inline bool reader::end_member(entry& out) {
  padding_ = static_cast<std::uint32_t>(detail::padding(member_.size));
  std::swap(out, member_);
  state_ = state::header;
  return true;
}

MILLRACE_NOINLINE inline void reader::refuse_to_fit(std::uint64_t size, std::uint64_t at, std::string_view name) {
  const std::uint64_t begin = in_.offset();
  if (begin > most_bytes || size > most_bytes - begin) fail(at, "the member reaches beyond byte 2^63", name);
  fail(at, "the member's " + std::to_string(size) + " bytes reach beyond the object's end", name);
}

/// All input has been read: says so, or, when no more comes, whether the archive may end here.
inline bool reader::starved() {
  in_.release_read();
  if (!ended_) return false;
  const std::uint64_t end = in_.offset();
  if (state_ == state::body || state_ == state::skip) {
    fail(end,
         "the archive is cut inside a member: " + std::to_string(end - member_.data_offset) + " of " +
             std::to_string(member_.size) + " bytes are there",
         member_.name);
  }
  if (state_ == state::extended) fail(end, "the archive is cut inside an extended header");
  if (carried_ != 0 || state_ == state::sparse_map) fail(end, "the archive is cut inside a header");
  if (extended_.pending()) fail(end, "the archive is cut between an extended header and its member");
  if (end == 0 && !options_.allow_empty) fail(end, "the object is empty, not an archive");
  if (options_.require_end_block && !end_block_seen_) fail(end, "the archive has no end-of-archive block");
  state_ = state::end;
  return false;
}

MILLRACE_NOINLINE inline void reader::fail(std::uint64_t at, std::string_view reason, std::string_view name) {
  failure_.assign(reason.data(), reason.size());
  failed_name_.assign(name.data(), name.size());
  failed_at_ = at;
  state_ = state::failed;
  in_.drop();
  body_.drop();
  throw_failure();
}

}  // namespace millrace::tar
