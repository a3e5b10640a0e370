// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zlib.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/tar/detail/unpacker.hpp>
#include <millrace/tar/detail/window.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

MILLRACE_INLINE bool enable(::archive* a, format kind) {
  const auto unpack = [a](int filter) {
    return ::archive_read_append_filter(a, filter) == ARCHIVE_OK &&
           ::archive_read_support_format_raw(a) == ARCHIVE_OK && ::archive_read_support_format_empty(a) == ARCHIVE_OK;
  };
  switch (kind) {
    case format::bzip2:
      return unpack(ARCHIVE_FILTER_BZIP2);
    case format::xz:
      return unpack(ARCHIVE_FILTER_XZ);
    case format::lz4:
      return unpack(ARCHIVE_FILTER_LZ4);
    case format::lzma:
      return unpack(ARCHIVE_FILTER_LZMA);
    case format::zip:
      return ::archive_read_support_format_zip_streamable(a) == ARCHIVE_OK;
    case format::cpio:
      return ::archive_read_support_format_cpio(a) == ARCHIVE_OK;
    default:
      return false;
  }
}

MILLRACE_INLINE std::string_view packed_input::next() noexcept {
  remember(current_.view());
  given_ += current_.size();
  current_ = bytes();
  if (next_ == queue_.size()) return {};
  current_ = std::move(queue_[next_]);
  if (++next_ == queue_.size()) {
    queue_.clear();
    next_ = 0;
  }
  return current_.view();
}

MILLRACE_INLINE bool packed_input::look(std::uint64_t at, std::size_t size, std::string& out) const {
  const std::uint64_t left = given_ + current_.size() - at;
  if (left <= current_.size()) {
    out = current_.view().substr(current_.size() - static_cast<std::size_t>(left), size);
    return true;
  }
  const std::uint64_t earlier = left - current_.size();
  if (earlier > before_.size()) return false;
  out = before_.substr(before_.size() - static_cast<std::size_t>(earlier), size);
  out += current_.view().substr(0, size - out.size());
  return true;
}

MILLRACE_INLINE void packed_input::remember(std::string_view piece) noexcept {
  if (piece.size() >= remembered_) {
    before_.assign(piece.data() + piece.size() - remembered_, remembered_);
    return;
  }
  if (before_.size() + piece.size() > 2 * remembered_) before_.erase(0, before_.size() - remembered_);
  before_.append(piece.data(), piece.size());  // within the constructor's reservation: allocates nothing
}

/// zlib counts in 32 bits.
MILLRACE_INLINE ::uInt at_once(std::size_t n) noexcept {
  return static_cast<::uInt>(std::min<std::size_t>(n, std::numeric_limits<::uInt>::max()));
}

MILLRACE_INLINE void gzip_decoder::start(int window_bits) {
  if (::inflateInit2(&state_, window_bits) != Z_OK) throw std::bad_alloc();
}

MILLRACE_INLINE const char* gzip_decoder::step(std::string_view& in, std::span<char>& out) {
  if (complete_) ::inflateReset(&state_);
  state_.next_in = const_cast<::Bytef*>(reinterpret_cast<const ::Bytef*>(in.data()));  // zlib only reads it
  const ::uInt given = state_.avail_in = at_once(in.size());
  state_.next_out = reinterpret_cast<::Bytef*>(out.data());
  const ::uInt room = state_.avail_out = at_once(out.size());
  const int result = ::inflate(&state_, Z_NO_FLUSH);
  in.remove_prefix(given - state_.avail_in);
  out = out.subspan(room - state_.avail_out);
  complete_ = result == Z_STREAM_END;
  if (result == Z_MEM_ERROR) throw std::bad_alloc();
  if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return nullptr;
  return state_.msg != nullptr ? state_.msg : "it is damaged";
}

MILLRACE_INLINE const char* deflate_decoder::step(std::string_view& in, std::span<char>& out) {
  if (started_) return gzip_decoder::step(in, out);
  while (header_.size() < 2 && !in.empty()) {
    header_ += in[0];
    in.remove_prefix(1);
  }
  if (header_.size() < 2) return nullptr;
  const auto first = static_cast<unsigned char>(header_[0]);
  const auto second = static_cast<unsigned char>(header_[1]);
  const bool has_header = (first & 0x0f) == Z_DEFLATED && first >> 4 <= 7 && (first << 8 | second) % 31 == 0;
  start(has_header ? most_window : -most_window);
  started_ = true;
  std::string_view begin = header_;
  while (!begin.empty() && !complete_) {
    if (const char* const wrong = gzip_decoder::step(begin, out)) return wrong;
  }
  return begin.empty() ? nullptr : "it ends in its second byte";
}

MILLRACE_INLINE zstd_decoder::zstd_decoder(window_claim& windows)
    : state_(::ZSTD_createDCtx()), windows_(windows) {
  if (state_ == nullptr) throw std::bad_alloc();
  // The limit is ours, as libzstd tells no numbers.
  const int most = ::ZSTD_dParam_getBounds(::ZSTD_d_windowLogMax).upperBound;
  ::ZSTD_DCtx_setParameter(state_.get(), ::ZSTD_d_windowLogMax, most);
}

MILLRACE_INLINE const char* zstd_decoder::step(std::string_view& in, std::span<char>& out) {
  if (complete_) {
    header_.clear();
    judged_ = false;
  }
  if (!judged_) {
    const std::size_t known = header_.size();
    header_.append(in.substr(0, most_zstd_header - known));
    const std::optional<std::uint64_t> window = zstd_window(header_);
    judged_ = window.has_value();
    if (window) refusal_ = windows_.need(*window);
    refuses_ = !refusal_.empty();
    if (refuses_) return refusal_.c_str();
  }
  ::ZSTD_inBuffer from = {in.data(), in.size(), 0};
  ::ZSTD_outBuffer to = {out.data(), out.size(), 0};
  const std::size_t result = ::ZSTD_decompressStream(state_.get(), &to, &from);
  in.remove_prefix(from.pos);
  out = out.subspan(to.pos);
  complete_ = result == 0;
  if (::ZSTD_isError(result) == 0) return nullptr;
  if (::ZSTD_getErrorCode(result) == ::ZSTD_error_memory_allocation) throw std::bad_alloc();
  return ::ZSTD_getErrorName(result);
}

MILLRACE_INLINE std::unique_ptr<stream_decoder> make_stream_decoder(format kind, window_claim& windows) {
  if (kind == format::gzip) return std::unique_ptr<stream_decoder>(new gzip_decoder());
  if (kind == format::deflate) return std::unique_ptr<stream_decoder>(new deflate_decoder());
  if (kind == format::zstd) return std::unique_ptr<stream_decoder>(new zstd_decoder(windows));
  return nullptr;
}

MILLRACE_INLINE std::string zip_name(std::string_view header) {
  constexpr std::size_t fixed = 30;
  const std::size_t name_bytes = header.size() < fixed ? 0 : number_at(header, 26, 2);
  const std::size_t extra_bytes = header.size() < fixed ? 0 : number_at(header, 28, 2);
  if (header.size() < fixed + name_bytes + extra_bytes) return std::string();
  std::string_view name = header.substr(fixed, name_bytes);
  std::string_view extra = header.substr(fixed + name_bytes, extra_bytes);
  while (extra.size() >= 4) {
    constexpr std::size_t before_name = 5;  // a version and the name's CRC
    const std::string_view field = extra.substr(4, number_at(extra, 2, 2));
    if (number_at(extra, 0, 2) == 0x7075 && field.size() > before_name && field[0] == 1 &&
        number_at(field, 1, 4) ==
            ::crc32(0, reinterpret_cast<const ::Bytef*>(name.data()), static_cast<::uInt>(name.size()))) {
      name = field.substr(before_name);
      break;
    }
    extra.remove_prefix(std::min(extra.size(), 4 + field.size()));
  }
  return std::string(name.substr(0, name.find('\0')));
}

MILLRACE_INLINE void zip_directory::feed(std::string_view piece) {
  if (ended_) return;
  text_.append(piece.data(), piece.size());
  std::size_t at = 0;
  while (text_.size() - at >= record_bytes) {
    const std::string_view record = std::string_view(text_).substr(at);
    if (record.substr(0, 4) != "PK\x01\x02") {
      ended_ = true;
      break;
    }
    const auto size = static_cast<std::size_t>(record_bytes + number_at(record, 28, 2) + number_at(record, 30, 2) +
                                               number_at(record, 32, 2));
    if (record.size() < size) break;
    at += size;
    ++records_;
  }
  text_.erase(0, at);
}

MILLRACE_INLINE bool zip_directory::complete() const noexcept {
  const std::string_view rest = text_;
  if (rest.size() < end_bytes) return false;
  return rest.substr(0, 4) == "PK\x05\x06" ||  // or its 64-bit form
         rest.substr(0, 4) == "PK\x06\x06";
}

MILLRACE_INLINE unpacker::unpacker(format kind, const archive_options& options, slab_pool pool, std::string_view head,
                                   std::shared_ptr<window_budget> windows)
    : kind_(kind),
      options_(options),
      pool_(std::move(pool)),
      window_(window_of(kind, head)),
      windows_(kind, options, std::move(windows)),
      input_(kind == format::zip ? most_zip_header : 4 * KiB),
      fiber_(stack_bytes, &unpacker::enter, this) {}

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
  if (u.refused_ != nullptr || (u.kind_ == format::xz && !u.judge_blocks(piece))) return ARCHIVE_FATAL;
  *data = piece.data();
  return static_cast<la_ssize_t>(piece.size());
}

MILLRACE_INLINE bool unpacker::judge_blocks(std::string_view piece) noexcept {
  try {
    const std::uint64_t dictionary = blocks_.feed(piece);
    if (dictionary != 0) no_window_ = windows_.need(dictionary);
    return no_window_.empty();
  } catch (...) {
    exception_ = std::current_exception();
    return false;
  }
}

MILLRACE_INLINE bool unpacker::fail(std::string reason, std::uint64_t at) {
  reason_ = std::move(reason);
  offset_ = at;
  return false;
}

MILLRACE_INLINE bool unpacker::unpack() {
  if (std::string refusal = windows_.need(window_); !refusal.empty()) return fail(std::move(refusal), 0);
  if (const std::unique_ptr<stream_decoder> decoder = make_stream_decoder(kind_, windows_)) return decompress(*decoder);
  const archive_handle a(::archive_read_new());
  if (a == nullptr) throw std::bad_alloc();
  if (!enable(a.get(), kind_)) return fail(std::string("this libarchive cannot read ") + format_name(kind_), 0);
  const int opened = ::archive_read_open(a.get(), this, nullptr, &unpacker::give, nullptr);
  if (stopped(0)) return false;
  if (opened != ARCHIVE_OK) return broken(a.get(), 0);
  if (!is_compression(kind_)) return read_members(a.get());
  // An error before the first byte has come out makes libarchive take the data for empty; the error stays.
  if (::archive_error_string(a.get()) != nullptr) return broken(a.get(), 0);
  return decompress(a.get());
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
  if (options_.max_ratio != 0 && output_ > 64 * MiB &&
      output_ / std::max<std::uint64_t>(1, consumed) > options_.max_ratio) {
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
  bool more = false;  // more output may come without more input
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
    if (wrong != nullptr) return decoder.refuses() ? fail(wrong, output_) : broken(consumed, wrong, output_);
    if (!within_limits(consumed, output_)) return false;
    more = out.empty() && !decoder.complete();
  }
  if (!decoder.complete()) return broken(consumed, "it ends too early", output_);
  if (is_packed_again({}, true)) return fail("the object is compressed more than once", 0);
  // After the compressed data there may be zeros (tapes and some stores pad), nothing else.
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
  // libarchive takes an incomplete header for bytes that follow the data.
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

/// Bytes of the record "TRAILER!!!" that ends a cpio archive. libarchive searches for it when it finds no header.
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
    // RETRY would mean to search for the next header after the broken one.
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

/// Compares the number of members with the zip's directory, which begins at offset `consumed`.
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

/// Reads the name as the archive has it, whatever the locale.
MILLRACE_INLINE bool unpacker::read_name(::archive* a, ::archive_entry* e) {
  if (kind_ != format::zip) {
    const char* const name = ::archive_entry_pathname(e);
    member_.name = name == nullptr ? "" : name;
    return true;
  }
  const std::uint64_t at = member_.header_offset;
  std::string header;
  std::size_t begin = std::string::npos;  // libarchive searches for it
  if (input_.look(at, static_cast<std::size_t>(consumed(a) - at), header)) begin = header.find("PK\x03\x04");
  if (begin == std::string::npos) {
    member_.name.clear();
    return fail("something before the member's zip header was passed over", at);
  }
  member_.header_offset += begin;
  member_.name = zip_name(std::string_view(header).substr(begin));
  return true;
}

MILLRACE_INLINE bool unpacker::read_member(::archive* a, ::archive_entry* e) {
  member_.body = bytes();
  member_.header_offset = static_cast<std::uint64_t>(std::max<la_int64_t>(0, ::archive_read_header_position(a)));
  if (!read_name(a, e)) return false;
  member_.data_offset = member_.header_offset;
  member_.type = type_of(e);
  member_.size = 0;
  if (member_.is_regular() && kind_ == format::zip && member_.name.ends_with('/')) member_.type = '5';
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
  if (member_.name.size() > most_name_bytes) return fail(long_name, at);
  if (::archive_entry_is_encrypted(e) != 0) return fail("encrypted members are not supported", at);
  if (!member_.is_regular()) return true;
  if (member_.name.empty()) return fail("a member has no name", at);
  if (kind_ == format::cpio && ::archive_entry_nlink(e) > 1 && ::archive_entry_size(e) == 0) {
    return fail("hard-linked files are not supported in cpio archives: the body may be stored with another name", at);
  }
  return read_body(a, e);
}

MILLRACE_INLINE bool unpacker::read_body(::archive* a, ::archive_entry* e) {
  const std::uint64_t at = member_.header_offset;
  const std::uint64_t budget = options_.members.budget_bytes;
  const bool of_budget = budget != 0 && budget < options_.members.max_member_bytes;
  const std::uint64_t most = of_budget ? budget : options_.members.max_member_bytes;
  const std::string what_bounds =
      of_budget ? "the " + std::to_string(budget) + " of the run's memory budget" : "max_member_bytes";
  const bool known = ::archive_entry_size_is_set(e) != 0;
  const auto announced = static_cast<std::uint64_t>(known ? std::max<la_int64_t>(0, ::archive_entry_size(e)) : 0);
  if (announced > most) {
    return fail("the member's " + std::to_string(announced) + " bytes are more than " + what_bounds, at);
  }
  // More than the input has is taken as it comes: a header may announce any number.
  std::uint64_t first = 16 * MiB;
  if (announced > first) first = std::max<std::uint64_t>(first, input_.held());
  const auto allocate = [](std::uint64_t bytes) {  // huge pages, for much
    const auto size = static_cast<std::size_t>(bytes);
    return size < 16 * MiB ? writable_bytes::allocate(size) : slab_pool(size).acquire();
  };
  writable_bytes memory = allocate(std::min(known ? announced : most, known ? first : 64 * KiB));
  std::size_t filled = 0;
  for (;;) {
    const void* data = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    const int result = ::archive_read_data_block(a, &data, &size, &offset);
    if (stopped(at)) return false;
    if (result == ARCHIVE_EOF) break;
    constexpr std::string_view unsupported = "Unsupported ZIP compression method";
    if (result != ARCHIVE_OK && archive_words(a).starts_with(unsupported)) {
      const bool deflate64 = archive_words(a).find("64") != std::string::npos;
      return fail(std::string("the member is packed by ") +
                      (deflate64 ? "Deflate64, as Windows packs files of 2 GiB and more" : "another method") +
                      ", which libarchive does not unpack (" + archive_words(a) + "): pack it by Deflate",
                  at);
    }
    if (result != ARCHIVE_OK) return broken(a, at);
    if (size == 0) continue;
    if (static_cast<std::uint64_t>(offset) != filled) return fail("sparse members are not supported", at);
    if (known && size > announced - filled) return fail("the member is longer than its header says", at);
    if (size > most - filled) {
      if (!of_budget) return fail("the member has more than max_member_bytes", at);
      return fail("the member's first " + std::to_string(filled + size) + " bytes are more than " + what_bounds, at);
    }
    output_ += size;
    if (!within_limits(consumed(a), at)) return false;
    if (size > memory.capacity() - filled) {
      const std::uint64_t wanted = std::max<std::uint64_t>(filled + size, 2 * std::uint64_t(memory.capacity()));
      writable_bytes larger = allocate(std::min(known ? announced : most, wanted));
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
