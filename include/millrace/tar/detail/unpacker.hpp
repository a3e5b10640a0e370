// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/tar/detail/fiber.hpp>
#include <millrace/tar/detail/window.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

/// The only file that uses libarchive's names.

struct free_archive {
  void operator()(::archive* a) const noexcept { ::archive_read_free(a); }
};
using archive_handle = std::unique_ptr<::archive, free_archive>;

/// libarchive's words for its last error. It has none for some.
inline std::string archive_words(::archive* a) {
  if (::archive_errno(a) == ENOMEM) return "a header has no end, or says that it needs more memory than there is";
  const char* words = ::archive_error_string(a);
  return words != nullptr ? words : "the data ends too early or is damaged";
}

/// Lets `a` read this one compression or format and no other. A filter is appended, not supported: libarchive would ask
/// its output for a further layer, again and again and inside the call that opens, where nothing bounds the output of a
/// few hundred bytes. The tar format is not among them: decompressed bytes are taken raw and walked by tar::reader.
/// Returns false if libarchive lacks it (it would run a program).
bool enable(::archive* a, format kind);

inline bool is_compression(format kind) noexcept { return kind >= format::gzip && kind <= format::deflate; }

/// True if a warning is only about libarchive's wish to convert a name to the process's locale. Names are taken as
/// bytes, and a library does not set the locale.
inline bool is_about_charset(std::string_view words) noexcept {
  return words.find("be converted") != std::string_view::npos;
}

inline bool is_zero(std::string_view text) noexcept { return text.find_first_not_of('\0') == std::string_view::npos; }

/// The pieces fed to a library that wants one whole piece at a time and keeps looking at it until it asks for the next.
/// Remembers a little of the earlier pieces, to look at the bytes that the library left unread at its end.
class packed_input {
 public:
  /// Keeps `remembered` bytes of the pieces before the current one.
  explicit packed_input(std::size_t remembered) : remembered_(remembered) { before_.reserve(2 * remembered); }

  void push(bytes piece) {
    if (!piece.empty() && !ended_) queue_.push_back(std::move(piece));
  }
  void end() noexcept { ended_ = true; }

  /// Bytes of the current piece and of those after it. Looks at each.
  std::size_t held() const noexcept {
    std::size_t sum = current_.size();
    for (std::size_t i = next_; i < queue_.size(); ++i) sum += queue_[i].size();
    return sum;
  }
  /// True when nothing can be given and more may come.
  bool starved() const noexcept { return next_ == queue_.size() && !ended_; }

  /// The next piece, valid until the next call; empty at the end. The one before is let go.
  std::string_view next() noexcept;

  /// Bytes of the pieces before the current one.
  std::uint64_t before() const noexcept { return given_; }

  /// The bytes given from offset `consumed` on. False when they are not all remembered: after reading that far ahead,
  /// the rest cannot be sound.
  bool unread(std::uint64_t consumed, std::string& out) const { return look(consumed, SIZE_MAX, out); }

  /// `size` of the bytes given from offset `at` on, or as many as there are. False when they are not all remembered.
  bool look(std::uint64_t at, std::size_t size, std::string& out) const;

 private:
  void remember(std::string_view piece) noexcept;

  const std::size_t remembered_;
  std::vector<bytes> queue_;
  std::size_t next_ = 0;
  bytes current_;
  bool ended_ = false;
  std::uint64_t given_ = 0;  // bytes of the pieces before current_
  std::string before_;
};

/// Decompresses one format: members or frames, one after the other, each with its checksums verified. Not to be used
/// after an error.
class stream_decoder {
 public:
  stream_decoder() = default;
  stream_decoder(const stream_decoder&) = delete;
  stream_decoder& operator=(const stream_decoder&) = delete;
  virtual ~stream_decoder() = default;

  /// True if a member or frame may begin so.
  virtual bool begins(char first) const noexcept = 0;
  /// Decompresses some of `in` into `out`, and removes the used part from the front of both. Something must be in `in`,
  /// or `out` have been filled by the step before. Returns the fault of the data, or null. Throws std::bad_alloc.
  virtual const char* step(std::string_view& in, std::span<char>& out) = 0;
  /// True if the data may end here: after a complete member or frame. All of it has been output then.
  bool complete() const noexcept { return complete_; }
  /// True if the error of step() is an exceeded limit rather than damage.
  bool refuses() const noexcept { return refuses_; }

 protected:
  bool complete_ = false;
  bool refuses_ = false;
};

/// By zlib.
class gzip_decoder : public stream_decoder {
 public:
  gzip_decoder() { start(with_gzip_header + most_window); }
  ~gzip_decoder() override { ::inflateEnd(&state_); }
  bool begins(char first) const noexcept override { return first == '\x1f'; }
  MILLRACE_INLINE const char* step(std::string_view& in, std::span<char>& out) override;

 protected:
  static constexpr int most_window = 15;
  static constexpr int with_gzip_header = 16;

  gzip_decoder(std::nullptr_t /*start later*/) noexcept {}
  void start(int window_bits);

 private:
  ::z_stream state_ = {};
};

/// By zlib: the coding that a server calls "deflate", which is RFC 1950 or, as many servers understood it, RFC 1951
/// alone. One stream: nothing says that several may follow each other.
class deflate_decoder final : public gzip_decoder {
 public:
  deflate_decoder() noexcept : gzip_decoder(nullptr) {}
  bool begins(char) const noexcept override { return false; }
  MILLRACE_INLINE const char* step(std::string_view& in, std::span<char>& out) override;

 private:
  bool started_ = false;
  std::string header_;  // two bytes, which tell which of the two it is
};

/// By libzstd. Skippable frames are read and give nothing.
class zstd_decoder final : public stream_decoder {
 public:
  /// The window of each frame is asked of `windows`, which outlives it.
  explicit zstd_decoder(window_claim& windows);
  bool begins(char first) const noexcept override { return first == '\x28' || (first >= '\x50' && first <= '\x5f'); }
  MILLRACE_INLINE const char* step(std::string_view& in, std::span<char>& out) override;

 private:
  struct freed {
    void operator()(::ZSTD_DCtx* state) const noexcept { ::ZSTD_freeDCtx(state); }
  };
  std::unique_ptr<::ZSTD_DCtx, freed> state_;
  window_claim& windows_;
  std::string header_;  // of the frame, as far as its window needs it
  bool judged_ = false;  // its window
  std::string refusal_;
};

/// `windows` outlives it. Null for a format that libarchive decompresses. (For the others it accepts data that is cut
/// or damaged: it verifies no checksum of gzip, and a zstd frame that is skipped may end anywhere.)
std::unique_ptr<stream_decoder> make_stream_decoder(format kind, window_claim& windows);

/// Most bytes of a member's header in a zip: two texts follow it.
inline constexpr std::size_t most_zip_header = 30 + 2 * std::size_t(UINT16_MAX);

/// The name of the member whose header (PKWARE APPNOTE 4.3.7) begins `header`, and its extra field: as the archive has
/// it, or, if Info-ZIP's field 0x7075 (APPNOTE 4.6.9) goes with that name, in UTF-8. Like Python's zipfile, up to a
/// NUL. libarchive would convert it to the process's locale, and has none if that cannot be done.
std::string zip_name(std::string_view header);

/// Counts the records of a zip's central directory (PKWARE APPNOTE 4.3.12), which follows the members.
///
/// libarchive, reading a zip from its front, searches for the next member's header: one whose header is damaged it
/// passes over without a word. The directory tells how many there were.
class zip_directory {
 public:
  /// The next bytes, from the first after the last member.
  void feed(std::string_view piece);

  std::uint64_t records() const noexcept { return records_; }

  /// True if the directory is followed by its end record, which every zip has. Asked when all has been fed.
  bool complete() const noexcept;

 private:
  static constexpr std::size_t record_bytes = 46;  // without name, extra field and comment
  static constexpr std::size_t end_bytes = 22;

  std::string text_;  // a record that is not whole yet; at the end, the bytes after the records
  std::uint64_t records_ = 0;
  bool ended_ = false;
};

/// libarchive, inverted: it pulls input through a callback, but here input is pushed. It runs in a fiber that is
/// suspended whenever the callback has no input or there is output.
///
/// Decompresses (bzip2, xz, lz4: data comes out in slabs) or reads members (zip, cpio). Everything is copied out of
/// libarchive's memory. One thread at a time; stays where it was constructed. If it is destroyed in the middle, the
/// callback fails, so that libarchive and the fiber run to their ends and free their memory.
///
/// gzip and zstd are decompressed by zlib and libzstd in libarchive's place, straight into the slabs.
class unpacker {
 public:
  enum class event : unsigned char {
    hungry,  ///< feed() or end_input() first
    data,    ///< take_data() has decompressed bytes
    member,  ///< take_member() has a member
    done,    ///< the archive has ended; take_data() may have a rest
    failed,  ///< see rethrow(), reason(), offset(); take_data() may have earlier data
  };

  /// `head`: the object's first bytes, of detect_bytes if it has as many. `windows`: of the objects unpacked beside it;
  /// null: there are none.
  unpacker(format kind, const archive_options& options, slab_pool pool, std::string_view head,
           std::shared_ptr<window_budget> windows = nullptr);
  ~unpacker() {
    cancelled_ = true;
    if (fiber_.started() && !fiber_.done()) fiber_.resume();
  }

  void feed(bytes piece);
  void end_input() noexcept { input_.end(); }

  /// Takes the window that the first bytes ask for, if there is room beside the other objects: else it is too early to
  /// run(). A window that can never have room is refused by run().
  bool take_window() { return windows_.take(window_); }

  /// Runs until there is something to say.
  event run();

  /// Decompressed bytes that have not been taken yet; may be empty.
  bytes take_data();
  /// The member of event::member.
  void take_member(entry& out) { std::swap(out, member_); }

  const std::string& reason() const noexcept { return reason_; }
  /// Bytes that had come out when it failed; for formats with members, where the member's header is.
  std::uint64_t offset() const noexcept { return offset_; }
  const std::string& failed_name() const noexcept { return failed_name_; }

 private:
  static constexpr std::size_t stack_bytes = 256 * KiB;
  /// Most bytes that libarchive gets at once: its work on them is bounded, and then it asks for more.
  static constexpr std::size_t most_piece = 64 * KiB;
  /// Most bytes of a zip that may lie between a folder and the next header. Some writers give folders an empty body,
  /// which libarchive unpacks inside the call for the next header.
  static constexpr std::uint64_t most_between = 256 * KiB;
  /// Most bytes that libarchive may gather before it does something with them. A block of lz4 has 8 MiB at most.
  static constexpr std::uint64_t most_held = 16 * MiB;

  static void enter(void* self);

  /// libarchive's read callback: nothing may be thrown through it.
  static la_ssize_t give(::archive* a, void* self, const void** data) noexcept;

  void pause(event why) noexcept {
    event_ = why;
    fiber_.suspend();
  }

  /// Returns true if there is memory for the xz blocks that begin in this piece.
  bool judge_blocks(std::string_view piece) noexcept;

  bool fail(std::string reason, std::uint64_t at);

  /// Checked after every call of libarchive, which may take an error of give() for the end of the input.
  bool stopped(std::uint64_t at) {
    if (refused_ != nullptr) fail(std::string("the ") + format_name(kind_) + " data " + refused_, at);
    if (!no_window_.empty()) fail(no_window_, at);
    return cancelled_ || refused_ != nullptr || !no_window_.empty() || exception_ != nullptr;
  }

  bool unpack();

  static std::uint64_t consumed(::archive* a) noexcept {
    return static_cast<std::uint64_t>(std::max<la_int64_t>(0, ::archive_filter_bytes(a, -1)));
  }

  bool broken(std::uint64_t consumed, const std::string& why, std::uint64_t at);
  bool broken(::archive* a, std::uint64_t at) { return broken(consumed(a), archive_words(a), at); }

  bool within_limits(std::uint64_t consumed, std::uint64_t at);

  bool decompress(stream_decoder& decoder);
  bool decompress(::archive* a);

  /// True if the output is compressed too; asked when there is enough to tell. One layer is taken off, no more.
  bool is_packed_again(std::string_view text, bool at_end);

  /// The next piece of the input, empty after the last one. False: dropped.
  bool next_piece(std::string_view& out);

  /// Makes room in a slab. False: dropped.
  bool make_room();

  /// Copies decompressed bytes into slabs. False: dropped.
  bool put(std::string_view data);

  /// After the compressed data there may be zeros (tapes and some stores pad), nothing else.
  bool check_end(std::uint64_t consumed);

  /// Gives all input from offset `consumed` to its end, read ahead or not, to `look`. False: dropped.
  template <class Look>
  bool for_rest(std::uint64_t consumed, bool& known, Look look) {
    std::string ahead;
    known = input_.unread(consumed, ahead);
    look(std::string_view(ahead));
    for (std::string_view piece;;) {
      if (!next_piece(piece)) return false;
      if (piece.empty()) return true;
      look(piece);
    }
  }

  bool read_members(::archive* a);
  bool check_directory(std::uint64_t consumed, std::uint64_t members);
  bool read_name(::archive* a, ::archive_entry* e);
  bool read_member(::archive* a, ::archive_entry* e);
  bool read_body(::archive* a, ::archive_entry* e);

  format kind_;
  archive_options options_;
  slab_pool pool_;
  const std::uint64_t window_;  // as far as the first bytes say
  window_claim windows_;
  xz_blocks blocks_;
  packed_input input_;
  event event_ = event::hungry;
  bool cancelled_ = false;
  const char* refused_ = nullptr;         // why give() has given no more
  std::string no_window_;                 // or this
  std::uint64_t most_read_ = UINT64_MAX;  // end of the input that the next header may need
  std::uint64_t output_ = 0;
  std::string begin_;  // of the output, until its format is known
  writable_bytes slab_;
  std::size_t filled_ = 0;
  std::size_t taken_ = 0;
  entry member_;
  std::string reason_;
  std::string failed_name_;
  std::uint64_t offset_ = 0;
  std::exception_ptr exception_;
  fiber fiber_;
};

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/unpacker.ipp>
#endif
