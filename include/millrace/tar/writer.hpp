// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::tar {

/// Metadata of a member besides its name and body.
struct member_options {
  /// Nanoseconds since 1970, not negative. A fraction of a second is kept by a pax header.
  std::int64_t mtime_ns = 0;
  /// Permission bits.
  unsigned mode = 0644;
};

/// Appends to a string. It must outlive the writer.
class string_sink {
 public:
  string_sink(std::string& out) noexcept  // NOLINT: a writer is made from the string itself
      : out_(&out) {}
  void operator()(std::string_view piece) const { out_->append(piece.data(), piece.size()); }

 private:
  std::string* out_;
};

/// Writes a tar archive of regular files: plain ustar headers, with a pax header before a member whose name is longer
/// than 100 bytes, whose size is 8 GiB or more, or whose time has a fraction of a second. Equal calls give equal bytes
/// everywhere.
///
/// `Sink` is called with each piece, in order: writer(text) appends to a string, writer([&](std::string_view piece)
/// {...}) goes anywhere. An exception of the sink passes through and leaves the archive cut. Errors: archive_error for
/// a name that tar cannot hold or a body that is not as long as announced. Without finish() the archive has no
/// end-of-archive block.
template <class Sink>
class writer {
 public:
  explicit writer(Sink sink) : sink_(std::move(sink)) {}

  /// Writes a member.
  void add(std::string_view name, std::string_view body, member_options options = member_options()) {
    begin(name, body.size(), options);
    write(body);
    end();
  }

  /// Starts a member whose body of exactly `size` bytes follows by write() in any number of pieces, then end().
  void begin(std::string_view name, std::uint64_t size, member_options options = member_options()) {
    if (open_) throw archive_error("the member before it has not been ended", at(name));
    if (name.empty() || name.find('\0') != std::string_view::npos || name.back() == '/') {
      throw archive_error("not a name for a file in a tar archive", at(name));
    }
    if (size > INT64_MAX || options.mtime_ns < 0) throw archive_error("a size or time that tar cannot hold", at(name));
    const std::int64_t seconds = options.mtime_ns / 1000000000;
    std::string pax;
    if (name.size() > 100) append_record(pax, "path", name);
    if (size > most_octal) append_record(pax, "size", std::to_string(size));
    if (const std::int64_t fraction = options.mtime_ns % 1000000000; fraction != 0) {
      std::string digits = std::to_string(1000000000 + fraction).substr(1);
      digits.erase(digits.find_last_not_of('0') + 1);
      append_record(pax, "mtime", std::to_string(seconds) + "." + digits);
    }
    if (!pax.empty()) {
      put_header("././@PaxHeader", 'x', pax.size(), 0644, 0);
      put(pax);
      pad(pax.size());
    }
    put_header(name.substr(0, 100), '0', size > most_octal ? 0 : size, options.mode, seconds);
    open_ = true;
    size_ = left_ = size;
  }

  /// Writes the next piece of the member's body.
  void write(std::string_view piece) {
    if (!open_ || piece.size() > left_) throw archive_error("more bytes than the member was announced with", at({}));
    put(piece);
    left_ -= piece.size();
  }

  /// Ends the member.
  void end() {
    if (!open_ || left_ != 0) throw archive_error("fewer bytes than the member was announced with", at({}));
    pad(size_);
    open_ = false;
  }

  /// Writes the end-of-archive block. Nothing may be added after it.
  void finish() {
    if (open_) throw archive_error("the last member has not been ended", at({}));
    const char zeros[2 * detail::block_bytes] = {};
    put({zeros, sizeof zeros});
  }

  /// Bytes written so far.
  std::uint64_t bytes_written() const noexcept { return written_; }

 private:
  static constexpr std::uint64_t most_octal = (std::uint64_t(1) << 33) - 1;  // eleven octal digits

  where at(std::string_view name) const { return where{std::string(), written_, std::string(name)}; }

  /// "<length> <key>=<value>\n", where the length counts its own digits.
  static void append_record(std::string& out, std::string_view key, std::string_view value) {
    const std::size_t rest = key.size() + value.size() + 3;
    std::size_t length = rest + 1;
    while (std::to_string(length).size() + rest != length) ++length;
    out += std::to_string(length);
    out += ' ';
    out.append(key.data(), key.size());
    out += '=';
    out.append(value.data(), value.size());
    out += '\n';
  }

  static void put_octal(char* field, std::size_t digits, std::uint64_t value) noexcept {
    for (std::size_t i = digits; i-- > 0; value >>= 3) field[i] = static_cast<char>('0' + (value & 7));
  }

  void put_header(std::string_view name, char type, std::uint64_t size, unsigned mode, std::int64_t seconds) {
    char block[detail::block_bytes] = {};
    std::memcpy(block, name.data(), std::min<std::size_t>(name.size(), 100));
    put_octal(block + 100, 7, mode & 07777);
    put_octal(block + 108, 7, 0);
    put_octal(block + 116, 7, 0);
    put_octal(block + 124, 11, size);
    put_octal(block + 136, 11, std::min(static_cast<std::uint64_t>(seconds), most_octal));
    std::memset(block + 148, ' ', 8);
    block[156] = type;
    std::memcpy(block + 257,
                "ustar\0"
                "00",
                8);
    put_octal(block + 329, 7, 0);
    put_octal(block + 337, 7, 0);
    put_octal(block + 148, 6, detail::byte_sum(block));
    block[154] = '\0';
    put({block, sizeof block});
  }

  void put(std::string_view piece) {
    if (piece.empty()) return;
    sink_(piece);
    written_ += piece.size();
  }

  void pad(std::uint64_t size) {
    const char zeros[detail::block_bytes] = {};
    put({zeros, static_cast<std::size_t>(-size & (detail::block_bytes - 1))});
  }

  Sink sink_;
  bool open_ = false;
  std::uint64_t size_ = 0;
  std::uint64_t left_ = 0;
  std::uint64_t written_ = 0;
};

writer(std::string&) -> writer<string_sink>;

}  // namespace millrace::tar
