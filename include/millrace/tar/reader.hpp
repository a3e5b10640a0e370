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
  bool next(entry& out);

  /// Says that no more input comes. Throws where the archive is cut short, unless complete members have not been taken
  /// yet: then next() hands them out first and throws behind them.
  void finish();

  /// Passes over a body that next() would pass over unseen (with reader_options::headers_only: any), and its padding.
  /// For when next() wants more input: feed() goes on at the offset that is returned; finish(), if that is not in the
  /// object.
  std::uint64_t skip();

  /// True once no further member can come: the end-of-archive block has been read, or finish() was called and every
  /// member taken. The rest of the input, if any, need not be fetched.
  bool done() const noexcept { return state_ == state::end && !has_pending_; }

  /// What is unusual about the end of the archive, as a sentence; empty when nothing is, or before done().
  std::string_view warning() const noexcept;

 private:
  static constexpr std::uint64_t most_bytes = INT64_MAX - std::uint64_t(detail::block_bytes);
  enum class state : unsigned char { header, extended, body, skip, sparse_map, end, failed };

  bool step(entry& out);
  bool step_or_break(entry& out);
  /// Out of memory in the middle of a member: what comes next must not be taken for a header.
  void break_off() noexcept;
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

}  // namespace millrace::tar

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/impl/reader.ipp>
#endif
