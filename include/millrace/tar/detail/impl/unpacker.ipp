// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
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
  if (u.kind_ == format::gzip) u.gzip_.input(piece);
  *data = piece.data();
  return static_cast<la_ssize_t>(piece.size());
}

MILLRACE_INLINE bool unpacker::fail(std::string reason, std::uint64_t at) {
  reason_ = std::move(reason);
  offset_ = at;
  return false;
}

MILLRACE_INLINE bool unpacker::unpack() {
  const archive_handle a(::archive_read_new());
  if (a == nullptr) throw std::bad_alloc();
  if (!enable(a.get(), kind_)) return fail(std::string("this libarchive cannot read ") + format_name(kind_), 0);
  const int opened = ::archive_read_open(a.get(), this, nullptr, &unpacker::give, nullptr);
  if (stopped(0)) return false;
  if (opened != ARCHIVE_OK) return broken(a.get(), 0);
  return is_compression(kind_) ? decompress(a.get()) : read_members(a.get());
}

MILLRACE_INLINE bool unpacker::broken(::archive* a, std::uint64_t at) {
  return fail(std::string("the ") + format_name(kind_) + " data is broken or cut near its byte " +
                  std::to_string(consumed(a)) + ": " + archive_words(a),
              at);
}

MILLRACE_INLINE bool unpacker::within_limits(::archive* a, std::uint64_t at) {
  if (options_.max_output_bytes != 0 && output_ > options_.max_output_bytes) {
    return fail("the object unpacks to more than max_output_bytes", at);
  }
  if (output_ > options_.free_bytes && output_ / std::max<std::uint64_t>(1, consumed(a)) > options_.max_ratio) {
    return fail("the object unpacks to more than max_ratio times its size", at);
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
    if (!within_limits(a, output_)) return false;
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

MILLRACE_INLINE bool unpacker::put(std::string_view data) {
  if (kind_ == format::gzip) gzip_.output(data);
  output_ += data.size();
  while (!data.empty()) {
    if (!slab_ || filled_ == slab_.capacity()) {
      if (taken_ != filled_) pause(event::data);
      if (cancelled_) return false;
      slab_ = pool_.acquire();
      filled_ = taken_ = 0;
    }
    const std::size_t n = std::min(data.size(), slab_.capacity() - filled_);
    std::memcpy(slab_.data() + filled_, data.data(), n);
    filled_ += n;
    data.remove_prefix(n);
  }
  return true;
}

MILLRACE_INLINE bool unpacker::check_end(std::uint64_t consumed) {
  const std::string trailer = input_.last_bytes(consumed, 8);
  bool clean = true;
  if (!for_rest(consumed, clean, [&clean](std::string_view piece) { clean = clean && is_zero(piece); })) return false;
  if (!clean) return fail(std::string("something else follows the ") + format_name(kind_) + " data", output_);
  if (kind_ != format::gzip) return true;
  const gzip_check::verdict verdict = gzip_.judge(trailer);
  unverified_ = verdict == gzip_check::verdict::unknown;
  if (verdict == gzip_check::verdict::wrong) return fail("the gzip data's checksum or length is wrong", output_);
  return true;
}

}  // namespace millrace::tar::detail
