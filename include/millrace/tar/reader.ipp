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

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/tar/detail/other_kinds.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

MILLRACE_INLINE void input::push(bytes piece) {
  if (piece.empty()) return;
  if (used_ == current_.size() && next_ == queue_.size()) {
    become_current(std::move(piece));
  } else {
    queue_.push_back(std::move(piece));
  }
}

MILLRACE_INLINE std::size_t input::copy(char* to, std::size_t most) {
  std::size_t done = 0;
  while (done < most) {
    const std::size_t n = std::min(together(), most - done);
    if (n == 0) break;
    std::memcpy(to + done, here(), n);
    advance(n);
    done += n;
  }
  return done;
}

MILLRACE_INLINE std::uint64_t input::skip(std::uint64_t most) {
  if (MILLRACE_LIKELY(together() >= most)) {
    advance(static_cast<std::size_t>(most));
    return most;
  }
  std::uint64_t done = 0;
  while (done < most) {
    const std::uint64_t n = std::min<std::uint64_t>(together(), most - done);
    if (n == 0) break;
    advance(static_cast<std::size_t>(n));
    done += n;
  }
  return done;
}

MILLRACE_INLINE void input::drop() noexcept {
  base_ += current_.size();
  used_ = 0;
  current_ = bytes();
  for (; next_ != queue_.size(); ++next_) base_ += queue_[next_].size();
  queue_.clear();
  next_ = 0;
}

MILLRACE_INLINE void input::release_read() noexcept {
  if (used_ != current_.size()) return;
  base_ += used_;
  used_ = 0;
  current_ = bytes();
}

MILLRACE_INLINE MILLRACE_NOINLINE void input::next_piece() noexcept {
  if (next_ == queue_.size()) return;
  become_current(std::move(queue_[next_]));
  if (++next_ == queue_.size()) {
    queue_.clear();
    next_ = 0;
  }
}

MILLRACE_INLINE void input::become_current(bytes piece) noexcept {
  base_ += current_.size();
  used_ = 0;
  current_ = std::move(piece);
}

MILLRACE_INLINE bool body_collector::collect(input& in, bytes& out) {
  const auto wanted = static_cast<std::size_t>(wanted_);
  if (!memory_) {
    const std::size_t together = in.together();
    if (together == 0 && wanted != 0) return false;
    if (together >= wanted) {
      in.take(wanted, out);
      return true;
    }
    memory_ = writable_bytes::allocate(static_cast<std::size_t>(std::min(wanted_, at_once_)));
  }
  done_ += in.copy(memory_.data() + done_, memory_.capacity() - static_cast<std::size_t>(done_));
  while (done_ != wanted_ && done_ == memory_.capacity()) {
    writable_bytes larger =
        writable_bytes::allocate(static_cast<std::size_t>(std::min<std::uint64_t>(wanted_, 2 * done_)));
    std::memcpy(larger.data(), memory_.data(), static_cast<std::size_t>(done_));
    memory_ = std::move(larger);
    done_ += in.copy(memory_.data() + done_, memory_.capacity() - static_cast<std::size_t>(done_));
  }
  if (done_ != wanted_) return false;
  out = memory_.share(0, wanted);
  memory_ = writable_bytes();
  return true;
}

MILLRACE_INLINE void pax_records::clear() noexcept {
  path.clear();
  sparse_name.clear();
  size.reset();
  sparse = false;
}

MILLRACE_INLINE std::optional<std::uint64_t> parse_decimal(std::string_view digits, std::size_t most_digits) noexcept {
  if (digits.empty() || digits.size() > most_digits) return std::nullopt;
  std::uint64_t value = 0;
  for (char c : digits) {
    const auto digit = static_cast<unsigned>(static_cast<unsigned char>(c)) - '0';
    if (digit > 9 || value > (UINT64_MAX - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

/// Applies one record to `out`. Keys that change neither where members begin nor their names are not kept.
MILLRACE_INLINE const char* apply_pax_record(std::string_view key, std::string_view value, bool global,
                                             pax_records& out) {
  if (key.empty()) return "a pax record has an empty key";
  const bool is_path = key == "path";
  if (is_path || key == "linkpath" || key == "uname" || key == "gname") {
    if (value.find('\0') != std::string_view::npos) return "a pax name contains a NUL byte";
  } else if (key.find('\0') != std::string_view::npos) {
    return "a pax key contains a NUL byte";
  }
  if (is_path || key == "linkpath") {
    if (value.size() > most_name_bytes) return long_name;
    // A path for all members to come makes no sense and no reader agrees with another on it.
    if (is_path && !global) out.path.assign(value.data(), value.size());
  } else if (key == "size") {
    if (value.empty()) {
      out.size.reset();
      return nullptr;
    }
    const std::optional<std::uint64_t> size = parse_decimal(value, 64);
    if (!size || *size > INT64_MAX) return "a pax size is not a number below 2^63";
    if (global) return "a global pax header sets the size of every member";
    out.size = *size;
  } else if (key.substr(0, 11) == "GNU.sparse." || key == "SUN.holesdata") {
    out.sparse = true;
    if (key == "GNU.sparse.name") {
      if (value.size() > most_name_bytes) return long_name;
      if (value.find('\0') != std::string_view::npos) return "a pax name contains a NUL byte";
      out.sparse_name.assign(value.data(), value.size());
    }
  }
  return nullptr;
}

MILLRACE_INLINE MILLRACE_NOINLINE pax_problem parse_pax(std::string_view text, bool global, pax_records& out) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    // Up to 20 digits (leading zeros are written by some): no search runs through a hostile header again and again.
    std::size_t blank = 0;
    std::uint64_t length = 0;
    for (; blank < 20 && blank < rest.size(); ++blank) {
      const auto digit = static_cast<unsigned>(static_cast<unsigned char>(rest[blank])) - '0';
      if (digit > 9 || (blank == 19 && length > (UINT64_MAX - digit) / 10)) break;
      length = length * 10 + digit;
    }
    if (blank == 0 || blank == rest.size() || rest[blank] != ' ') {
      return {at, "a pax record does not begin with its length"};
    }
    if (length > rest.size()) return {at, "a pax record is longer than its header"};
    if (length < blank + 3) return {at, "a pax record's length is too small"};
    const auto size = static_cast<std::size_t>(length);
    if (rest[size - 1] != '\n') return {at, "a pax record does not end in a line feed"};
    const std::string_view record = rest.substr(blank + 1, size - blank - 2);
    if (!is_time(record)) {
      const std::size_t equals = record.find('=');
      if (equals == std::string_view::npos) return {at, "a pax record has no '='"};
      const char* reason = apply_pax_record(record.substr(0, equals), record.substr(equals + 1), global, out);
      if (reason != nullptr) return {at, reason};
    }
    at += size;
  }
  return {};
}

MILLRACE_INLINE bool extended_headers::begin(char type, std::uint64_t size) noexcept {
  const bool is_name = type == 'L' || type == 'K';
  if (MILLRACE_UNLIKELY(size > (is_name ? most_name_bytes + 1 : most_pax_bytes))) return false;
  if (type != 'g') pending_ = true;
  type_ = type;
  wanted_ = static_cast<std::size_t>(size);
  gathered_.clear();
  return true;
}

MILLRACE_INLINE bool extended_headers::read(input& in, pax_problem& problem) {
  if (MILLRACE_LIKELY(gathered_.empty() && in.together() >= wanted_)) {
    const char* payload = in.here();
    in.advance(wanted_);
    problem = apply({payload, wanted_});
    return true;
  }
  const std::size_t had = gathered_.size();
  gathered_.resize(wanted_);
  const std::size_t got = in.copy(gathered_.data() + had, wanted_ - had);
  gathered_.resize(had + got);
  if (gathered_.size() != wanted_) return false;
  problem = apply(gathered_);
  return true;
}

MILLRACE_INLINE void extended_headers::assign_name(std::string& name, const char* block) {
  std::string* own = has_long_name_                        ? &long_name_
                     : !pax_.sparse_name.empty()           ? &pax_.sparse_name
                     : MILLRACE_LIKELY(!pax_.path.empty()) ? &pax_.path
                                                           : nullptr;
  if (own == nullptr) {
    detail::assign_name(name, block);
  } else {
    std::swap(name, *own);
  }
}

MILLRACE_INLINE void extended_headers::finish_member(std::uint64_t& size, bool& sparse) noexcept {
  if (pax_.size) size = *pax_.size;
  if (pax_.sparse) sparse = true;
  pax_.clear();
  has_long_name_ = false;
  pending_ = false;
}

MILLRACE_INLINE pax_problem extended_headers::apply(std::string_view payload) {
  if (MILLRACE_UNLIKELY(type_ != 'x' && type_ != 'X')) return apply_other(payload);
  pax_.clear();  // of several headers before one member the last counts
  return parse_pax(payload, false, pax_);
}

MILLRACE_INLINE MILLRACE_NOINLINE pax_problem extended_headers::apply_other(std::string_view payload) {
  switch (type_) {
    case 'L':
    case 'K': {
      const std::string_view name = payload.substr(0, payload.find('\0'));
      if (name.size() > most_name_bytes) return {0, long_name};
      if (type_ == 'K') return {};  // a link's target, which is not reported
      long_name_.assign(name.data(), name.size());
      has_long_name_ = true;
      return {};
    }
    default: {  // 'g'
      // Nothing that a global header may say has a bearing on a body or a name; it is checked, not kept.
      pax_records global;
      const pax_problem problem = parse_pax(payload, true, global);
      if (problem.reason == nullptr && global.sparse) return {0, "a global pax header makes every member sparse"};
      return problem;
    }
  }
}

}  // namespace millrace::tar::detail

namespace millrace::inline MILLRACE_ABI::tar {

MILLRACE_INLINE bool reader::next(entry& out) {
  if (MILLRACE_UNLIKELY(has_pending_)) {
    std::swap(out, pending_);
    has_pending_ = false;
    return true;
  }
  return step_or_break(out);
}

MILLRACE_INLINE void reader::finish() {
  if (ended_) return;
  ended_ = true;
  has_pending_ = step_or_break(pending_);
  if (state_ == state::end && !follows_.empty() && warning_.empty()) say_what_follows();
}

MILLRACE_INLINE std::uint64_t reader::skip() {
  if (state_ == state::skip) in_.jump(body_.jump(in_), limit_);
  if (state_ == state::header && in_.together() == 0) in_.jump(std::exchange(padding_, 0), limit_);
  return in_.offset();
}

MILLRACE_INLINE std::string_view reader::warning() const noexcept {
  if (state_ == state::end && !warning_.empty()) return warning_;
  if (state_ != state::end || end_block_seen_ || in_.offset() == 0) return {};
  return lone_zero_block_ ? "only half of the end-of-archive block is there"
                          : "no end-of-archive block: the archive may have been cut between two members";
}

MILLRACE_INLINE bool reader::step_or_break(entry& out) {
  try {
    return step(out);
  } catch (...) {
    if (state_ != state::failed) break_off();
    throw;
  }
}

MILLRACE_INLINE void reader::break_off() noexcept {
  failure_ = "failed before";  // no longer than a string holds without allocating
  failed_name_.clear();
  failed_at_ = in_.offset();
  state_ = state::failed;
  in_.drop();
  body_.drop();
}

MILLRACE_INLINE bool reader::step(entry& out) {
  for (;;) {
    switch (state_) {
      case state::header: {
        if (padding_ != 0) {
          padding_ -= static_cast<std::uint32_t>(in_.skip(padding_));
          if (padding_ != 0) return starved();
        }
        const char* block = take_block();
        if (block == nullptr) return starved();
        if (on_header(block, out)) return true;
        break;
      }
      case state::extended:
        if (!read_extended()) return starved();
        break;
      case state::body:
        return body_.collect(in_, member_.body) ? end_member(out) : starved();
      case state::skip:
        return body_.skip(in_) ? end_member(out) : starved();
      case state::end:
        return false;
      case state::failed:
        throw_failure();
    }
  }
}

MILLRACE_INLINE const char* reader::take_block() {
  if (MILLRACE_LIKELY(carried_ == 0 && in_.together() >= detail::block_bytes)) {
    const char* block = in_.here();
    in_.advance(detail::block_bytes);
    return block;
  }
  carried_ += in_.copy(carry_ + carried_, detail::block_bytes - carried_);
  if (carried_ != detail::block_bytes) return nullptr;
  carried_ = 0;
  return carry_;
}

MILLRACE_ALWAYS_INLINE bool reader::on_header(const char* block, entry& out) {
  const std::uint64_t at = in_.offset() - detail::block_bytes;
  const detail::number size = detail::size_field(block);
  const char type = detail::type_field(block);
  const bool extended = detail::extended_headers::is_type(type);
  if (!group_open_) {
    group_open_ = true;
    group_start_ = at;
  }
  if (!extended) prefetch_behind(size.value);
  const std::uint32_t sum = detail::byte_sum(block);
  if (MILLRACE_UNLIKELY(sum == 0)) {
    on_zero_block(at);
    return false;
  }
  if (MILLRACE_UNLIKELY(lone_zero_block_)) {
    if (!options_.concatenated) {
      group_start_ = at - detail::block_bytes;
      fail(at, "something other than the end of the archive follows a block of zeros");
    }
    lone_zero_block_ = end_block_seen_ = false;
  }
  if (MILLRACE_UNLIKELY(!detail::checksum_matches(block, sum))) {
    refuse_header({block, detail::block_bytes}, at);
  }
  if (MILLRACE_UNLIKELY(size.problem != nullptr)) fail(at, std::string("a header's size field ") + size.problem);
  if (!extended) return begin_member(block, size.value, at, out);
  if (MILLRACE_UNLIKELY(!extended_.begin(type, size.value))) {
    fail(at, detail::extended_headers::refusal(type, size.value));
  }
  check_fits(size.value, at);
  state_ = state::extended;
  return false;
}

/// Prefetches the headers after a body of `size` bytes, which have not been checked yet, while this member's header and
/// the caller keep the processor busy.
MILLRACE_ALWAYS_INLINE void reader::prefetch_behind(std::uint64_t size) noexcept {
  const std::uint64_t body = size + detail::padding(size);
  if (in_.left() >= 3 * detail::block_bytes && in_.left() - 3 * detail::block_bytes >= body) {
    detail::prefetch_header(in_.here() + body, extended_.pending());
  }
}

MILLRACE_INLINE MILLRACE_NOINLINE void reader::on_zero_block(std::uint64_t at) {
  if (extended_.pending()) fail(at, "the archive ends between an extended header and its member");
  group_open_ = false;
  end_block_seen_ = lone_zero_block_;
  lone_zero_block_ = true;
  if (end_block_seen_ && !options_.concatenated) {
    state_ = state::end;
    zeros_at_ = at - detail::block_bytes;
    looked_ = at + detail::block_bytes;
    for (std::size_t n = in_.together(); n != 0; n = in_.together()) {
      look_after_end({in_.here(), n});
      in_.advance(n);
    }
    in_.drop();
  }
}

/// The bytes at looked_ are these.
MILLRACE_INLINE MILLRACE_NOINLINE void reader::look_after_end(std::string_view text) {
  constexpr std::size_t wanted = 6;
  if (follows_.size() == wanted) return;
  if (follows_.empty()) {
    const std::size_t zeros = std::min(text.find_first_not_of('\0'), text.size());
    looked_ += zeros;
    text.remove_prefix(zeros);
  }
  follows_ += text.substr(0, wanted - follows_.size());
  if (follows_.size() == wanted) say_what_follows();
}

MILLRACE_INLINE void reader::say_what_follows() {
  const std::string place = "bytes other than zero follow at byte " + std::to_string(looked_);
  if (zeros_at_ != 0) {
    warning_ = "the archive ends with zeros at byte " + std::to_string(zeros_at_) + ", and " + place +
               ": they are not read (reader_options::concatenated goes on there)";
    return;
  }
  constexpr std::uint64_t first_descriptor = 32768;
  const bool iso = looked_ == first_descriptor && follows_.compare(1, 5, "CD001") == 0;
  failure_ = iso ? "not a tar archive, but an ISO 9660 image" : "not a tar archive: it begins with zeros, and " + place;
  failed_at_ = 0;
  state_ = state::failed;
}

MILLRACE_INLINE bool reader::read_extended() {
  detail::pax_problem problem;
  if (!extended_.read(in_, problem)) return false;
  if (MILLRACE_UNLIKELY(problem.reason != nullptr)) fail(in_.offset() - extended_.size() + problem.at, problem.reason);
  padding_ = static_cast<std::uint32_t>(detail::padding(extended_.size()));
  state_ = state::header;
  return true;
}

MILLRACE_ALWAYS_INLINE bool reader::begin_member(const char* block, std::uint64_t size, std::uint64_t at, entry& out) {
  out.type = detail::type_field(block);
  out.header_offset = group_start_;
  out.data_offset = in_.offset();
  group_open_ = false;
  bool sparse = out.type == 'S';
  if (extended_.pending()) {
    extended_.assign_name(out.name, block);
    extended_.finish_member(size, sparse);
  } else {
    detail::assign_name(out.name, block);
  }
  if (MILLRACE_UNLIKELY(sparse)) fail(at, "sparse members are not supported", out.name);
  if (MILLRACE_UNLIKELY(!out.is_regular())) {
    if (out.type == '\0') resolve_old_type(size, at, out);
    if (!out.is_regular()) return begin_odd(size, at, out);
  }
  if (MILLRACE_UNLIKELY(out.name.empty())) fail(at, "a member has no name");
  out.size = size;
  check_fits(size, at, out.name);
  if (MILLRACE_UNLIKELY(size > options_.max_member_bytes)) {
    fail(at, "the member's " + std::to_string(size) + " bytes are more than max_member_bytes", out.name);
  }
  if (MILLRACE_UNLIKELY(options_.budget_bytes != 0 && size > options_.budget_bytes)) {
    fail(at,
         "the member's " + std::to_string(size) + " bytes are more than the " + std::to_string(options_.budget_bytes) +
             " of the run's memory budget",
         out.name);
  }
  const std::size_t together = in_.together();
  if (MILLRACE_UNLIKELY(together < size || options_.headers_only)) return put_off(state::body, out);
  in_.take(static_cast<std::size_t>(size), out.body);
  const std::uint64_t padding = detail::padding(size);
  if (MILLRACE_LIKELY(together - size >= padding)) {
    in_.advance(static_cast<std::size_t>(padding));
  } else {
    padding_ = static_cast<std::uint32_t>(padding);
  }
  return true;
}

/// Old archives mark a directory only by its name.
MILLRACE_INLINE MILLRACE_NOINLINE void reader::resolve_old_type(std::uint64_t size, std::uint64_t at, entry& out) {
  const bool directory = !out.name.empty() && out.name.back() == '/';
  if (directory && size != 0) fail(at, "a directory of the old kind has a body", out.name);
  out.type = directory ? '5' : '0';
}

/// A member that is not a regular file.
MILLRACE_INLINE MILLRACE_NOINLINE bool reader::begin_odd(std::uint64_t size, std::uint64_t at, entry& out) {
  if (out.type == 'M') fail(at, "multi-volume archives are not supported", out.name);
  if (detail::is_header_only(out.type)) size = 0;
  out.size = size;
  check_fits(size, at, out.name);
  return put_off(state::skip, out);
}

/// Keeps a member until its body has been read or passed over.
MILLRACE_INLINE MILLRACE_NOINLINE bool reader::put_off(state next, entry& out) {
  out.body = bytes();
  constexpr std::uint64_t unchecked = 16 * MiB;
  body_.begin(out.size, options_.object_bytes != 0 ? out.size : unchecked);
  std::swap(member_, out);
  state_ = next == state::body && options_.headers_only ? state::skip : next;
  return false;
}

MILLRACE_INLINE bool reader::end_member(entry& out) {
  padding_ = static_cast<std::uint32_t>(detail::padding(member_.size));
  std::swap(out, member_);
  state_ = state::header;
  return true;
}

MILLRACE_INLINE MILLRACE_NOINLINE void reader::refuse_to_fit(std::uint64_t size, std::uint64_t at,
                                                             std::string_view name) {
  const std::uint64_t begin = in_.offset();
  if (begin > most_bytes || size > most_bytes - begin) fail(at, "the member reaches beyond byte 2^63", name);
  fail(at, "the member's " + std::to_string(size) + " bytes reach beyond the object's end", name);
}

/// All input has been read: asks for more, or, at the end of input, checks whether the archive may end here.
MILLRACE_INLINE bool reader::starved() {
  in_.release_read();
  if (!ended_) return false;
  const std::uint64_t end = in_.offset();
  if (state_ == state::body || state_ == state::skip) {
    fail(end,
         "the archive is cut inside a member: " + std::to_string(end - member_.data_offset) + " of " +
             std::to_string(member_.size) + " bytes are there",
         member_.name);
  }
  if (state_ == state::extended) fail(end, "the archive is cut inside an extended header");
  if (carried_ != 0 && carried_ == end) refuse_header({carry_, carried_}, 0);
  if (carried_ != 0) fail(end, "the archive is cut inside a header");
  if (extended_.pending()) fail(end, "the archive is cut between an extended header and its member");
  if (end == 0) fail(end, "the object is empty, not an archive");
  state_ = state::end;
  return false;
}

/// Something that is no header, or the beginning of the first one, with nothing after it.
MILLRACE_INLINE MILLRACE_NOINLINE void reader::refuse_header(std::string_view head, std::uint64_t at) {
  if (at != 0) fail(at, "a header has a wrong checksum");
  const bool cut = head.size() < detail::block_bytes;
  const std::string kind = detail::other_kind(head);
  // A name, which a tar begins with, looks like text.
  if (cut && kind == "text") fail(head.size(), "the archive is cut inside a header, or no tar" + detail::not_but(head));
  if (!kind.empty()) fail(0, "not a tar archive" + detail::not_but(head));
  if (cut) fail(head.size(), "the archive is cut inside a header");
  fail(0, "not a tar archive: the first header has a wrong checksum");
}

MILLRACE_INLINE MILLRACE_NOINLINE void reader::fail(std::uint64_t at, std::string_view reason, std::string_view name) {
  failure_.assign(reason.data(), reason.size());
  failed_name_.assign(name.data(), name.size());
  failed_at_ = at;
  state_ = state::failed;
  in_.drop();
  body_.drop();
  throw_failure();
}

}  // namespace millrace::tar
