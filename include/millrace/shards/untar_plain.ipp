// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/detail/other_kinds.hpp>
#include <millrace/tar/format.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE archive_warnings::~archive_warnings() {
  if (count_ <= named) return;
  try {
    log_line(executor_, "millrace: " + std::string(stage_) + ": " + std::to_string(count_ - named) +
                       " more archives with such warnings");
  } catch (...) {  // no memory for a remark
  }
}

MILLRACE_INLINE void archive_warnings::add(const shard& from, std::string_view warning) {
  if (!report_ || warning.empty() || ++count_ > named) return;
  where at;
  at.object = from.shown();
  const archive_error text(std::string(warning), std::move(at));  // in the words and the escapes of an error
  log_line(executor_, std::string("millrace: ") + stage_ + ": " + text.what(), log_level::warning,
           {{"stage", stage_}, {"shard", text.object()}, {"reason", text.reason()}});
}

MILLRACE_INLINE void archive_warnings::add_once(const shard& from, std::string_view warning) {
  if (report_ && !warning.empty() && first_time(from.shown() + ": " + std::string(warning))) add(from, warning);
}

MILLRACE_INLINE std::string no_files_of(std::uint64_t members, char first) {
  const char* const kind = first == '1'   ? "hard link"
                           : first == '2' ? "symbolic link"
                           : first == '5' ? "directory"
                           : first == '6' ? "FIFO"
                                          : "device, or of another kind";
  return "no sample: none of its " + std::to_string(members) + " members is a regular file (the first is a " + kind +
         ")";
}

MILLRACE_INLINE std::string coding_of(const shard& object, std::string_view head) {
  if (MILLRACE_LIKELY(object.encoding.empty()) || head.empty()) return std::string();
  std::string coding = tar::detail::content_coding(object.encoding);
  if (coding.empty() || tar::detect(head) != tar::format::tar) return coding;
  say_first("tar with a Content-Encoding",
            "its Content-Encoding is " + coding + ", but its bytes are a tar: read as they are",
            where{object.shown(), 0, std::string()});
  return std::string();
}

MILLRACE_INLINE void require_plain_tar(const shard& object, std::string_view head) {
  const std::string coding = coding_of(object, head);
  if (coding.empty()) return;
  throw archive_error("its Content-Encoding is " + coding + ": only plain tars can be read here",
                      where{object.shown(), 0, std::string()});
}

MILLRACE_INLINE void unread_headers::keep(std::optional<std::uint64_t> begin, std::uint64_t offset,
                                          std::string_view chunk) {
  const std::uint64_t end = offset + chunk.size();
  const std::uint64_t kept = offset - text_.size();
  if (!begin || *begin >= end || *begin < kept) {
    text_.clear();
  } else {
    text_.append(chunk);
    text_.erase(0, static_cast<std::size_t>(*begin - kept));
  }
}

MILLRACE_INLINE bytes unread_headers::from(std::uint64_t begin, std::uint64_t offset, const bytes& chunk) const {
  if (begin >= offset) {
    const std::uint64_t skipped = std::min<std::uint64_t>(begin - offset, chunk.size());
    return chunk.slice(static_cast<std::size_t>(skipped), chunk.size() - static_cast<std::size_t>(skipped));
  }
  const std::uint64_t kept = offset - text_.size();
  if (begin < kept) return bytes();
  return bytes::copy(text_.substr(static_cast<std::size_t>(begin - kept)) + std::string(chunk.view()));
}

[[noreturn]] MILLRACE_INLINE void rethrow_from(std::exception_ptr broken, const shard* from, std::uint64_t delivered) {
  try {
    std::rethrow_exception(std::move(broken));
  } catch (error& e) {
    if (from != nullptr) note_delivered(e, *from, delivered, "member");
    throw;
  }
}

MILLRACE_COROUTINE_BODY async_generator<member> untar_plain_members(async_generator<chunk> in,
                                                                    tar::reader_options options) {
  auto open = [options](const chunk& c, std::uint64_t budget, std::optional<std::uint64_t> begin) {
    const shard& s = *c.from;
    if (c.offset == 0 && !begin && (c.last || c.data.size() >= tar::detect_bytes)) require_plain_tar(s, c.data.view());
    tar::reader_options own = options;
    own.budget_bytes = budget;
    if (begin) own.start = *begin;
    if (s.size) own.object_bytes = *s.size;
    return tar::reader(s.shown(), own);
  };
  return untar_chunks(std::move(in), std::move(open));
}

}  // namespace millrace::detail
