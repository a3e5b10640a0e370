// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

/// The pieces fed and not yet read, as one stream with a position.
class input {
 public:
  explicit input(std::uint64_t start) noexcept : base_(start) {}

  void push(bytes piece);

  /// Offset of the next unread byte.
  std::uint64_t offset() const noexcept { return base_ + used_; }

  /// Unread bytes that lie together. 0 only when everything fed has been read.
  std::size_t together() {
    if (MILLRACE_UNLIKELY(used_ == current_.size())) next_piece();
    return current_.size() - used_;
  }

  /// Unread bytes of the current piece alone, which stays in place.
  std::size_t left() const noexcept { return current_.size() - used_; }

  /// The next byte, one of together(). Valid until the next call that reads.
  const char* here() const noexcept { return current_.data() + used_; }

  /// Passes over n <= together() bytes.
  void advance(std::size_t n) noexcept { used_ += n; }

  /// Passes over n <= together() bytes and shares them. Cheapest when `to` is a slice of the same piece.
  void take(std::size_t n, bytes& to) {
    to.assign_slice(current_, used_, n);
    used_ += n;
  }

  /// Copies up to `most` bytes across pieces; returns how many there were.
  std::size_t copy(char* to, std::size_t most);

  /// Passes over up to `most` bytes across pieces; returns how many there were.
  std::uint64_t skip(std::uint64_t most);

  /// Everything fed has been read: skips `n` more bytes, but not beyond `limit`, where the input ends.
  void jump(std::uint64_t n, std::uint64_t limit) noexcept {
    release_read();
    if (n != 0) base_ += std::min(n, limit - base_);
  }

  /// Drops everything unread.
  void drop() noexcept;

  /// Frees the current piece as soon as it has been read, so that its slab can be used again.
  void release_read() noexcept;

 private:
  void next_piece() noexcept;
  void become_current(bytes piece) noexcept;

  bytes current_;
  std::size_t used_ = 0;
  std::uint64_t base_;  // offset of current_'s first byte
  std::vector<bytes> queue_;
  std::size_t next_ = 0;
};

/// A body that was not all there when its header was read: shared if it still turns out to lie in one piece, gathered
/// into memory of its own if not, or passed over.
class body_collector {
 public:
  /// Memory for more than `at_once` bytes is taken as they come: a header may say anything.
  void begin(std::uint64_t size, std::uint64_t at_once) noexcept {
    wanted_ = size;
    at_once_ = at_once;
    done_ = 0;
  }

  /// True when `out` is the whole body; false: more input is needed.
  bool collect(input& in, bytes& out);

  /// True when the whole body has been passed over.
  bool skip(input& in) {
    done_ += in.skip(wanted_ - done_);
    return done_ == wanted_;
  }

  /// Skips the available bytes; returns how many bytes are missing, and counts them as skipped.
  std::uint64_t jump(input& in) {
    skip(in);
    return wanted_ - std::exchange(done_, wanted_);
  }

  void drop() noexcept { memory_ = writable_bytes(); }

 private:
  writable_bytes memory_;
  std::uint64_t wanted_ = 0;
  std::uint64_t at_once_ = 0;
  std::uint64_t done_ = 0;
};

/// Fields of a member that the pax records before it set. Empty strings: not given.
struct pax_records {
  std::string path;
  std::string sparse_name;  ///< of a sparse member, whose path is then a made-up one
  std::optional<std::uint64_t> size;
  bool sparse = false;

  void clear() noexcept;
};

/// A broken pax record: where in the header it begins, and why.
struct pax_problem {
  std::size_t at = 0;
  const char* reason = nullptr;
};

/// A run of decimal digits. Empty, too long, or anything else in it: nullopt.
std::optional<std::uint64_t> parse_decimal(std::string_view digits, std::size_t most_digits) noexcept;

/// The records that nearly every pax header consists of and that say nothing of names and bodies: mtime, atime, ctime.
inline bool is_time(std::string_view record) noexcept {
  return record.size() > 5 && std::memcmp(record.data() + 1, "time=", 5) == 0 &&
         (record[0] == 'm' || record[0] == 'a' || record[0] == 'c');
}

/// Reads the records "<length> <key>=<value>\n" of one extended header into `out`. POSIX.1-2017 pax, "pax Extended
/// Header". The grammar is kept strictly: a header that is not wholly records is refused.
pax_problem parse_pax(std::string_view text, bool global, pax_records& out);

/// Collects the extended headers before a member: pax 'x' and 'g', Solaris 'X', GNU long names 'L' and 'K'.
class extended_headers {
 public:
  static bool is_type(char type) noexcept {
    return type == 'x' || type == 'L' || type == 'g' || type == 'K' || type == 'X';
  }

  /// Starts on a header with a payload of `size` bytes. False: it is refused, see refusal().
  bool begin(char type, std::uint64_t size) noexcept;

  /// Why begin() refused the header.
  static std::string refusal(char type, std::uint64_t size) {
    if (type == 'L' || type == 'K') return long_name;
    return "a pax header of " + std::to_string(size) + " bytes is larger than 1 MiB";
  }

  /// Reads and applies the payload. False: more input is needed. What is wrong with it goes to `problem`.
  bool read(input& in, pax_problem& problem);

  /// Bytes of the payload.
  std::size_t size() const noexcept { return wanted_; }

  /// True when a header has been read that a member must follow.
  bool pending() const noexcept { return pending_; }

  /// The member's name, which `block` has when no extended header says otherwise.
  void assign_name(std::string& name, const char* block);

  /// Applies the rest to the member and forgets it.
  void finish_member(std::uint64_t& size, bool& sparse) noexcept;

 private:
  pax_problem apply(std::string_view payload);

  pax_problem apply_other(std::string_view payload);

  char type_ = 0;
  bool pending_ = false;
  bool has_long_name_ = false;
  std::size_t wanted_ = 0;
  pax_records pax_;
  std::string long_name_;
  std::string gathered_;
};

}  // namespace millrace::tar::detail

namespace millrace::inline MILLRACE_ABI::tar {

/// Walks a plain tar archive (v7, ustar, pax, GNU) that arrives in pieces, without copying it.
///
/// Use: feed() a piece, take members with next() until it says false, feed the next piece; after the last one finish(),
/// then next() until false once more. The pieces that the archive is cut into do not change the results, errors
/// included.
///
/// Memory: a body that lies in one piece is a slice of it and keeps it alive; one that straddles pieces is copied into
/// an allocation of its own. The reader holds on to a piece only until it has been read.
///
/// Strictness: headers must have a right checksum, numbers and pax records must parse, and every member must be whole.
/// Nothing is guessed, and the reader does not search for headers after a broken one. Sparse members and multi-volume
/// archives are refused. Bytes after the end-of-archive block are not read; if they are not all zeros, warning()
/// says so, and an object that begins with such a block is no tar, but an ISO 9660 image, for one. Names are raw bytes;
/// link targets and metadata are checked but not reported.
///
/// Errors: archive_error with the object, the byte offset of the block or record that is wrong (for a cut archive:
/// where the input ended) and the member if it is known. After an error the reader stays broken: next() throws the
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
    if (MILLRACE_UNLIKELY(state_ == state::end)) look_after_end(piece.view());
    if (MILLRACE_UNLIKELY(state_ == state::end || state_ == state::failed)) return;
    in_.push(std::move(piece));
  }

  /// Takes the next member. False: more input is needed, or done(). `out` may be reused from call to call,
  /// which saves allocations; its contents are unspecified after false.
  bool next(entry& out);

  /// Declares the end of input. Throws if the archive is truncated, unless complete members have not been taken yet:
  /// then next() returns them first, and throws after them.
  void finish();

  /// Skips a body that next() would skip (with reader_options::headers_only: any), and its padding. For when next()
  /// wants more input: feed() must continue at the offset that is returned; finish(), if that is not in the object.
  std::uint64_t skip();

  /// The offset at which a reader must begin (reader_options::start) to continue like this one: at the first header of
  /// the member whose headers are being read, or that a broken one belongs to; else, inside of a body too, at the next
  /// byte.
  std::uint64_t resume_at() const noexcept {
    return group_open_ || state_ == state::failed ? group_start_ : in_.offset() - carried_;
  }

  /// True once no further member can come: the end-of-archive block has been read, or finish() was called and every
  /// member taken. The rest of the input, if any, has no members; whether it is zeros, as it should be, is known when
  /// it has been fed, too.
  bool done() const noexcept { return state_ == state::end && !has_pending_; }

  /// An unusual property of the archive's end, as a sentence; empty if there is none, and before done().
  std::string_view warning() const noexcept;

 private:
  static constexpr std::uint64_t most_bytes = INT64_MAX - std::uint64_t(detail::block_bytes);
  enum class state : unsigned char { header, extended, body, skip, end, failed };

  bool step(entry& out);
  bool step_or_break(entry& out);
  /// Out of memory in the middle of a member: the next bytes must not be read as a header.
  void break_off() noexcept;
  bool on_header(const char* block, entry& out);
  void prefetch_behind(std::uint64_t size) noexcept;
  void on_zero_block(std::uint64_t at);
  void look_after_end(std::string_view text);
  void say_what_follows();
  bool begin_member(const char* block, std::uint64_t size, std::uint64_t at, entry& out);
  bool begin_odd(std::uint64_t size, std::uint64_t at, entry& out);
  void resolve_old_type(std::uint64_t size, std::uint64_t at, entry& out);
  bool put_off(state next, entry& out);
  bool read_extended();
  bool end_member(entry& out);
  const char* take_block();
  bool starved();
  void check_fits(std::uint64_t size, std::uint64_t at, std::string_view name = {}) {
    const std::uint64_t begin = in_.offset();
    if (MILLRACE_UNLIKELY(begin > limit_ || size > limit_ - begin)) refuse_to_fit(size, at, name);
  }
  [[noreturn]] void refuse_to_fit(std::uint64_t size, std::uint64_t at, std::string_view name);
  [[noreturn]] void refuse_header(std::string_view head, std::uint64_t at);
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
  std::uint64_t group_start_ = 0;  // offset of the coming member's first header
  reader_options options_;
  std::uint64_t limit_;  // largest offset that a body may end at
  detail::input in_;
  detail::extended_headers extended_;

  // A member that was not all there.
  entry member_;
  detail::body_collector body_;
  char carry_[detail::block_bytes];

  // After the end: the offset of its zeros, how far was looked, and the bytes after them.
  std::uint64_t zeros_at_ = 0;
  std::uint64_t looked_ = 0;
  std::string follows_;
  std::string warning_;

  entry pending_;  // found by finish(), not taken yet
  std::string object_;
  std::string failure_;
  std::string failed_name_;
  std::uint64_t failed_at_ = 0;
};

}  // namespace millrace::tar

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/reader.ipp>
#endif
