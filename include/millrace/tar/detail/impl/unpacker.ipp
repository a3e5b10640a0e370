// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/libarchive.hpp>
#include <millrace/tar/detail/unpacker.hpp>

namespace millrace::tar::detail {

MILLRACE_INLINE void unpacker::feed(bytes piece) {
  for (std::size_t at = 0; at < piece.size(); at += most_piece) {
    input_.push(piece.slice(at, std::min(most_piece, piece.size() - at)));
  }
}

MILLRACE_INLINE unpacker::event unpacker::run() {
  if (event_ == event::hungry && fiber_.started() && input_.starved()) return event::hungry;
  if (!fiber_.done()) fiber_.resume();
  if (exception_) {
    reason_ = "unpacking has failed before";
    std::rethrow_exception(std::exchange(exception_, nullptr));
  }
  return event_;
}

MILLRACE_INLINE bytes unpacker::take_data() {
  bytes data = slab_ ? slab_.share(taken_, filled_ - taken_) : bytes();
  taken_ = filled_;
  return data;
}

MILLRACE_INLINE void unpacker::enter(void* self) {
  auto& u = *static_cast<unpacker*>(self);
  try {
    u.event_ = u.unpack() ? event::done : event::failed;
  } catch (...) {
    u.exception_ = std::current_exception();
    u.event_ = event::failed;
  }
}

MILLRACE_INLINE la_ssize_t unpacker::give(::archive* a, void* self, const void** data) noexcept {
  auto& u = *static_cast<unpacker*>(self);
  while (!u.cancelled_ && u.input_.starved()) u.pause(event::hungry);
  if (u.cancelled_) {
    ::archive_set_error(a, ECANCELED, "dropped");
    return ARCHIVE_FATAL;
  }
  const std::string_view piece = u.input_.next();
  if (u.input_.before() > consumed(a) + most_held) u.refused_ = "has a name or header without an end";
  if (u.input_.before() > u.most_read_) u.refused_ = "has a folder with a body";
  if (u.refused_ != nullptr) return ARCHIVE_FATAL;
  *data = piece.data();
  return static_cast<la_ssize_t>(piece.size());
}

MILLRACE_INLINE bool unpacker::fail(std::string reason, std::uint64_t at) {
  reason_ = std::move(reason);
  offset_ = at;
  return false;
}

MILLRACE_INLINE bool unpacker::unpack() {
  if (const std::unique_ptr<stream_decoder> decoder = make_stream_decoder(kind_)) return decompress(*decoder);
  const archive_handle a(::archive_read_new());
  if (a == nullptr) throw std::bad_alloc();
  if (!enable(a.get(), kind_)) return fail(std::string("this libarchive cannot read ") + format_name(kind_), 0);
  const int opened = ::archive_read_open(a.get(), this, nullptr, &unpacker::give, nullptr);
  if (stopped(0)) return false;
  if (opened != ARCHIVE_OK) return broken(a.get(), 0);
  return is_compression(kind_) ? decompress(a.get()) : read_members(a.get());
}

MILLRACE_INLINE bool unpacker::broken(std::uint64_t consumed, const std::string& why, std::uint64_t at) {
  return fail(std::string("the ") + format_name(kind_) + " data is broken or cut near its byte " +
                  std::to_string(consumed) + ": " + why,
              at);
}

MILLRACE_INLINE bool unpacker::within_limits(std::uint64_t consumed, std::uint64_t at) {
  if (options_.max_output_bytes != 0 && output_ > options_.max_output_bytes) {
    return fail("the object unpacks to more than max_output_bytes", at);
  }
  if (output_ > options_.free_bytes && output_ / std::max<std::uint64_t>(1, consumed) > options_.max_ratio) {
    return fail("the object unpacks to more than max_ratio times its size", at);
  }
  return true;
}

MILLRACE_INLINE bool unpacker::next_piece(std::string_view& out) {
  while (!cancelled_ && input_.starved()) pause(event::hungry);
  if (cancelled_) return false;
  out = input_.next();
  return true;
}

MILLRACE_INLINE bool unpacker::decompress(stream_decoder& decoder) {
  std::uint64_t consumed = 0;
  std::string_view in;
  bool more = false;  // may come out of what has gone in
  for (;;) {
    if (in.empty() && !more) {
      if (!next_piece(in)) return false;
      if (in.empty()) break;
    }
    if (decoder.complete() && !decoder.begins(in[0])) break;
    if (!make_room()) return false;
    std::span<char> out(slab_.data() + filled_, slab_.capacity() - filled_);
    const std::size_t left = in.size();
    const char* const wrong = decoder.step(in, out);
    consumed += left - in.size();
    const std::string_view made(slab_.data() + filled_, slab_.capacity() - filled_ - out.size());
    if (is_packed_again(made, false)) return fail("the object is compressed more than once", 0);
    filled_ += made.size();
    output_ += made.size();
    if (wrong != nullptr) return broken(consumed, wrong, output_);
    if (!within_limits(consumed, output_)) return false;
    more = out.empty() && !decoder.complete();
  }
  if (!decoder.complete()) return broken(consumed, "it ends too early", output_);
  if (is_packed_again({}, true)) return fail("the object is compressed more than once", 0);
  // Behind the compressed data there may be zeros (tapes and some stores pad), nothing else.
  while (!in.empty()) {
    if (!is_zero(in)) return fail(std::string("something else follows the ") + format_name(kind_) + " data", output_);
    if (!next_piece(in)) return false;
  }
  return true;
}

MILLRACE_INLINE bool unpacker::decompress(::archive* a) {
  ::archive_entry* unused = nullptr;
  int result = ::archive_read_next_header(a, &unused);
  if (stopped(0)) return false;
  if (result != ARCHIVE_OK && result != ARCHIVE_EOF) return broken(a, 0);
  while (result != ARCHIVE_EOF) {
    const void* data = nullptr;
    std::size_t size = 0;
    la_int64_t at = 0;
    result = ::archive_read_data_block(a, &data, &size, &at);
    if (stopped(output_)) return false;
    if (result != ARCHIVE_OK && result != ARCHIVE_EOF) return broken(a, output_);
    const std::string_view text(static_cast<const char*>(data), result == ARCHIVE_OK ? size : 0);
    if (is_packed_again(text, result == ARCHIVE_EOF)) return fail("the object is compressed more than once", 0);
    if (!put(text)) return false;
    if (!within_limits(consumed(a), output_)) return false;
  }
  const std::uint64_t consumed = this->consumed(a);
  // What is no whole header libarchive takes for what follows the data.
  if (consumed == 0) return fail(std::string("the ") + format_name(kind_) + " data is broken or cut", 0);
  return check_end(consumed);
}

MILLRACE_INLINE bool unpacker::is_packed_again(std::string_view text, bool at_end) {
  if (output_ >= detect_bytes) return false;
  begin_.append(text.substr(0, detect_bytes - begin_.size()));
  return (at_end || begin_.size() == detect_bytes) && is_compression(detect(begin_));
}

MILLRACE_INLINE bool unpacker::make_room() {
  if (slab_ && filled_ < slab_.capacity()) return true;
  if (taken_ != filled_) pause(event::data);
  if (cancelled_) return false;
  slab_ = pool_.acquire();
  filled_ = taken_ = 0;
  return true;
}

MILLRACE_INLINE bool unpacker::put(std::string_view data) {
  output_ += data.size();
  while (!data.empty()) {
    if (!make_room()) return false;
    const std::size_t n = std::min(data.size(), slab_.capacity() - filled_);
    std::memcpy(slab_.data() + filled_, data.data(), n);
    filled_ += n;
    data.remove_prefix(n);
  }
  return true;
}

MILLRACE_INLINE bool unpacker::check_end(std::uint64_t consumed) {
  bool clean = true;
  if (!for_rest(consumed, clean, [&clean](std::string_view piece) { clean = clean && is_zero(piece); })) return false;
  return clean || fail(std::string("something else follows the ") + format_name(kind_) + " data", output_);
}

MILLRACE_INLINE char type_of(::archive_entry* e) noexcept {
  switch (::archive_entry_filetype(e)) {
    case AE_IFREG:
      // In most cpio archives the body of a hard-linked file is stored with one of its names.
      return ::archive_entry_hardlink(e) != nullptr && ::archive_entry_size(e) == 0 ? '1' : '0';
    case AE_IFLNK:
      return '2';
    case AE_IFCHR:
      return '3';
    case AE_IFBLK:
      return '4';
    case AE_IFDIR:
      return '5';
    case AE_IFIFO:
      return '6';
    default:
      return '?';
  }
}

/// Bytes of the record "TRAILER!!!" that ends a cpio archive. libarchive searches for it when what comes is no header.
MILLRACE_INLINE la_int64_t cpio_end_bytes(::archive* a) noexcept {
  switch (::archive_format(a)) {
    case ARCHIVE_FORMAT_CPIO_SVR4_NOCRC:
    case ARCHIVE_FORMAT_CPIO_SVR4_CRC:
      return 124;
    case ARCHIVE_FORMAT_CPIO_POSIX:
      return 87;
    case ARCHIVE_FORMAT_CPIO_BIN_LE:
    case ARCHIVE_FORMAT_CPIO_BIN_BE:
      return 38;
    default:  // afio's form has the longest header, of 116 bytes
      return 127;
  }
}

/// Bytes of a cpio header with a name and, of a symbolic link, its target, which libarchive reads with the header.
MILLRACE_INLINE la_int64_t cpio_header_bytes(::archive* a, std::size_t name, std::size_t target) noexcept {
  const auto both = static_cast<la_int64_t>(name + 1 + target);
  switch (::archive_format(a)) {
    case ARCHIVE_FORMAT_CPIO_SVR4_NOCRC:
    case ARCHIVE_FORMAT_CPIO_SVR4_CRC:
      return 110 + both + static_cast<la_int64_t>(-(110 + name + 1) & 3);
    case ARCHIVE_FORMAT_CPIO_POSIX:
      return 76 + both;
    case ARCHIVE_FORMAT_CPIO_BIN_LE:
    case ARCHIVE_FORMAT_CPIO_BIN_BE:
      return 26 + both + static_cast<la_int64_t>((name + 1) & 1);
    default:
      return 116 + both;
  }
}

MILLRACE_INLINE bool unpacker::read_members(::archive* a) {
  bool behind_folder = false;
  for (std::uint64_t members = 0;; ++members) {
    ::archive_entry* e = nullptr;
    if (behind_folder) most_read_ = consumed(a) + most_between;
    const int result = ::archive_read_next_header(a, &e);
    most_read_ = UINT64_MAX;
    if (stopped(static_cast<std::uint64_t>(std::max<la_int64_t>(0, ::archive_read_header_position(a))))) return false;
    if (result == ARCHIVE_EOF) {
      const la_int64_t end = ::archive_filter_bytes(a, -1);
      if (kind_ == format::zip) return check_directory(static_cast<std::uint64_t>(end), members);
      const la_int64_t begin = ::archive_read_header_position(a);
      if (end - begin <= cpio_end_bytes(a)) return true;
      return fail("something before the end of the cpio archive was passed over", static_cast<std::uint64_t>(begin));
    }
    // RETRY would mean to look for the next header somewhere behind the broken one.
    const bool usable = result == ARCHIVE_OK || (result == ARCHIVE_WARN && is_about_charset(archive_words(a)));
    if (!usable)
      return broken(a, static_cast<std::uint64_t>(std::max<la_int64_t>(0, ::archive_read_header_position(a))));
    if (!read_member(a, e)) {
      failed_name_ = std::move(member_.name);
      return false;
    }
    behind_folder = kind_ == format::zip && !member_.is_regular();
    pause(event::member);
    if (cancelled_) return false;
  }
}

/// Compares what was read with the zip's directory, which begins at offset `consumed`.
MILLRACE_INLINE bool unpacker::check_directory(std::uint64_t consumed, std::uint64_t members) {
  zip_directory directory;
  bool known = false;
  if (!for_rest(consumed, known, [&](std::string_view piece) { directory.feed(piece); })) return false;
  if (!known || !directory.complete()) return fail("the zip's directory is broken or cut", consumed);
  if (directory.records() == members) return true;
  return fail("the zip's directory lists " + std::to_string(directory.records()) + " members, " +
                  std::to_string(members) + " were found",
              consumed);
}

MILLRACE_INLINE bool unpacker::read_member(::archive* a, ::archive_entry* e) {
  const char* name = ::archive_entry_pathname(e);
  if (name == nullptr) name = ::archive_entry_pathname_utf8(e);
  member_.name = name == nullptr ? "" : name;
  member_.body = bytes();
  member_.header_offset = static_cast<std::uint64_t>(std::max<la_int64_t>(0, ::archive_read_header_position(a)));
  member_.data_offset = member_.header_offset;
  member_.type = type_of(e);
  member_.size = 0;
  const std::uint64_t at = member_.header_offset;
  if (kind_ == format::cpio) {
    // libarchive searches for a header where none is, and warns of that, but when the search goes beyond a piece.
    const char* target = member_.type == '2' ? ::archive_entry_symlink(e) : nullptr;
    const std::size_t target_bytes = target == nullptr ? 0 : std::strlen(target);
    const la_int64_t passed = ::archive_filter_bytes(a, -1) - static_cast<la_int64_t>(at);
    if (passed > cpio_header_bytes(a, member_.name.size(), target_bytes)) {
      member_.name.clear();  // it is not known whose header was passed over
      return fail("something before the member's cpio header was passed over", at);
    }
  }
  if (member_.name.size() > options_.members.max_name_bytes) return fail("a name is longer than max_name_bytes", at);
  if (::archive_entry_is_encrypted(e) != 0) return fail("encrypted members are not supported", at);
  if (!member_.is_regular()) return true;
  if (kind_ == format::cpio && ::archive_entry_nlink(e) > 1 && ::archive_entry_size(e) == 0) {
    return fail("hard-linked files are not supported in cpio archives: the body may be stored with another name", at);
  }
  return read_body(a, e);
}

MILLRACE_INLINE bool unpacker::read_body(::archive* a, ::archive_entry* e) {
  const std::uint64_t at = member_.header_offset;
  const std::uint64_t most = options_.members.max_member_bytes;
  const bool known = ::archive_entry_size_is_set(e) != 0;
  const auto announced = static_cast<std::uint64_t>(known ? std::max<la_int64_t>(0, ::archive_entry_size(e)) : 0);
  if (announced > most) {
    return fail("the member's " + std::to_string(announced) + " bytes are more than max_member_bytes", at);
  }
  writable_bytes memory =
      writable_bytes::allocate(static_cast<std::size_t>(known ? announced : std::min<std::uint64_t>(most, 64 * KiB)));
  std::size_t filled = 0;
  for (;;) {
    const void* data = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    const int result = ::archive_read_data_block(a, &data, &size, &offset);
    if (stopped(at)) return false;
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK) return broken(a, at);
    if (size == 0) continue;
    if (static_cast<std::uint64_t>(offset) != filled) return fail("sparse members are not supported", at);
    if (known && size > announced - filled) return fail("the member is longer than its header says", at);
    if (size > most - filled) return fail("the member has more than max_member_bytes", at);
    output_ += size;
    if (!within_limits(consumed(a), at)) return false;
    if (size > memory.capacity() - filled) {
      const std::uint64_t wanted = std::max<std::uint64_t>(filled + size, 2 * std::uint64_t(memory.capacity()));
      writable_bytes larger = writable_bytes::allocate(static_cast<std::size_t>(std::min(most, wanted)));
      std::memcpy(larger.data(), memory.data(), filled);
      memory = std::move(larger);
    }
    std::memcpy(memory.data() + filled, data, size);
    filled += size;
  }
  if (known && filled != announced) return fail("the member is shorter than its header says", at);
  member_.size = filled;
  member_.body = memory.share(0, filled).compact();
  return true;
}

}  // namespace millrace::tar::detail
