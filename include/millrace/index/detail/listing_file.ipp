// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/listing_file.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/shard_index.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

inline constexpr std::string_view listing_magic = "mrlisted";

MILLRACE_INLINE void listing_writer::add(const shard& s) {
  const auto alike = static_cast<std::size_t>(
      std::mismatch(s.url.begin(), s.url.end(), prefix_.begin(), prefix_.end()).first - s.url.begin());
  append_le(entries_, alike, 4);
  append_le(entries_, s.url.size() - alike, 4);
  entries_.append(s.url, alike);
  append_le(entries_, s.size.value_or(UINT64_MAX), 8);
  append_le(entries_, std::min<std::size_t>(s.etag.size(), 65535), 2);
  entries_.append(s.etag, 0, 65535);
  ++count_;
}

MILLRACE_INLINE std::string listing_writer::text() const {
  std::string body;
  body.reserve(24 + prefix_.size() + entries_.size());
  append_le(body, count_, 8);
  append_le(body, static_cast<std::uint64_t>(::time(nullptr)), 8);
  append_le(body, prefix_.size(), 4);
  body += prefix_;
  body += entries_;
  std::string out(listing_magic);
  append_le(out, 1, 4);
  append_le(out, crc32c(0, body.data(), body.size()), 4);
  return out + body;
}

MILLRACE_INLINE bool listing_reader::is_whole(std::string_view text) noexcept {
  return text.size() >= 36 && crc32c(0, text.data() + 16, text.size() - 16) == read_le(text, 12, 4);
}

MILLRACE_INLINE listing_reader::listing_reader(std::string_view text, std::string file, std::string_view prefix)
    : text_(text), file_(std::move(file)) {
  const auto fail = [&](std::uint64_t at, const std::string& why) { throw index_error(why, where{file_, at, {}}); };
  if (text_.substr(0, 8) != listing_magic || text_.size() < 36) {
    fail(0, "not a listing: it does not begin with \"mrlisted\", or is cut");
  }
  if (read_le(text_, 8, 4) != 1) {
    fail(8, "the listing has version " + std::to_string(read_le(text_, 8, 4)) + "; this program reads version 1");
  }
  if (!is_whole(text_)) fail(12, "the listing has a wrong checksum");
  count_ = left_ = number(8);
  made_ = static_cast<std::int64_t>(number(8));
  prefix_ = taken(number(4));
  if (prefix_ == prefix) return;
  throw configuration_error("the listing is of " + shown_url(std::string(prefix_)) + ", and not of " +
                                shown_url(std::string(prefix)),
                            where{file_, std::nullopt, {}});
}

MILLRACE_INLINE std::string_view listing_reader::taken(std::uint64_t n) {
  if (n > text_.size() - at_) throw index_error("a text reaches beyond the listing", where{file_, at_, {}});
  at_ += static_cast<std::size_t>(n);
  return text_.substr(at_ - static_cast<std::size_t>(n), static_cast<std::size_t>(n));
}

MILLRACE_INLINE std::uint64_t listing_reader::number(int bytes) {
  return read_le(taken(static_cast<std::uint64_t>(bytes)), 0, bytes);
}

MILLRACE_INLINE std::optional<shard> listing_reader::next() {
  if (left_ == 0) {
    if (at_ != text_.size()) throw index_error("there is something after the listing", where{file_, at_, {}});
    return std::nullopt;
  }
  --left_;
  std::string url(prefix_.substr(0, static_cast<std::size_t>(number(4))));
  url += taken(number(4));
  shard out(std::move(url));
  if (const std::uint64_t size = number(8); size != UINT64_MAX) out.size = size;
  out.etag = taken(number(2));
  return out;
}

}  // namespace millrace::detail
