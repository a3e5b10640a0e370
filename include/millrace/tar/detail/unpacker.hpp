// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/units.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/memory/writable_bytes.hpp>
#include <millrace/tar/archive_options.hpp>
#include <millrace/tar/detail/fiber.hpp>
#include <millrace/tar/detail/libarchive.hpp>
#include <millrace/tar/detail/packed_input.hpp>
#include <millrace/tar/detail/stream_decoder.hpp>
#include <millrace/tar/detail/zip_directory.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::tar::detail {

/// libarchive with its inside out: it pulls input through a callback, here input is pushed. It runs in a fiber that is
/// left whenever the callback has nothing to give or something has come out.
///
/// Decompresses (bzip2, xz, lz4: data comes out in slabs) or reads members (zip, cpio). Everything is copied out of
/// libarchive's memory. One thread at a time; stays where it was constructed. Destroying it in the middle lets the
/// callback fail, so that libarchive and the fiber run to their ends and free what they hold.
///
/// gzip and zstd are decompressed by zlib and libzstd in libarchive's place, straight into the slabs.
class unpacker {
 public:
  enum class event : unsigned char {
    hungry,  ///< feed() or end_input() first
    data,    ///< take_data() has decompressed bytes
    member,  ///< take_member() has a member
    done,    ///< the archive has ended; take_data() may have a rest
    failed,  ///< see rethrow(), reason(), offset(); take_data() may have what came before
  };

  unpacker(format kind, const archive_options& options, slab_pool pool)
      : kind_(kind), options_(options), pool_(std::move(pool)), fiber_(stack_bytes, &unpacker::enter, this) {}
  ~unpacker() {
    cancelled_ = true;
    if (fiber_.started() && !fiber_.done()) fiber_.resume();
  }

  void feed(bytes piece);
  void end_input() noexcept { input_.end(); }

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
  /// Most bytes that libarchive gets at once: what it does with them is bounded, and then it asks for more.
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

  bool fail(std::string reason, std::uint64_t at);

  /// Asked behind every call of libarchive, which may take an error of give() for the end of the input.
  bool stopped(std::uint64_t at) {
    if (refused_ != nullptr) fail(std::string("the ") + format_name(kind_) + " data " + refused_, at);
    return cancelled_ || refused_ != nullptr;
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

  /// Whether what comes out is compressed too; asked when there is enough to tell. One layer is taken off, no more.
  bool is_packed_again(std::string_view text, bool at_end);

  /// The next piece of the input, empty behind the last one. False: dropped.
  bool next_piece(std::string_view& out);

  /// Makes room in a slab. False: dropped.
  bool make_room();

  /// Copies decompressed bytes into slabs. False: dropped.
  bool put(std::string_view data);

  /// Behind the compressed data there may be zeros (tapes and some stores pad), nothing else.
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
  bool read_member(::archive* a, ::archive_entry* e);
  bool read_body(::archive* a, ::archive_entry* e);

  format kind_;
  archive_options options_;
  slab_pool pool_;
  packed_input input_;
  event event_ = event::hungry;
  bool cancelled_ = false;
  const char* refused_ = nullptr;         // why give() has given no more
  std::uint64_t most_read_ = UINT64_MAX;  // where what the next header needs must have ended
  std::uint64_t output_ = 0;
  std::string begin_;  // of the output, until it can be told what it is
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
#include <millrace/tar/detail/impl/unpacker.ipp>
#endif
