// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace::tar {

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
}

MILLRACE_INLINE std::uint64_t reader::skip() {
  if (state_ == state::skip) in_.jump(body_.jump(in_), limit_);
  if (state_ == state::header && in_.together() == 0) in_.jump(std::exchange(padding_, 0), limit_);
  return in_.offset();
}

MILLRACE_INLINE std::string_view reader::warning() const noexcept {
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
      case state::sparse_map:
        if (!walk_sparse_map()) return starved();
        break;
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
  if (!extended) prefetch_behind(size.value);
  const std::uint32_t sum = detail::byte_sum(block);
  if (MILLRACE_UNLIKELY(sum == 0)) {
    on_zero_block(at);
    return false;
  }
  if (MILLRACE_UNLIKELY(lone_zero_block_)) {
    if (!options_.concatenated) fail(at, "something other than the end of the archive follows a block of zeros");
    lone_zero_block_ = end_block_seen_ = false;
  }
  if (MILLRACE_UNLIKELY(!detail::checksum_matches(block, sum))) {
    fail(at, at == 0 ? "not a tar archive: the first header has a wrong checksum" : "a header has a wrong checksum");
  }
  if (MILLRACE_UNLIKELY(size.problem != nullptr)) fail(at, std::string("a header's size field ") + size.problem);
  if (!group_open_) {
    group_open_ = true;
    group_start_ = at;
  }
  if (!extended) return begin_member(block, size.value, at, out);
  if (MILLRACE_UNLIKELY(!extended_.begin(type, size.value, options_))) {
    fail(at, detail::extended_headers::refusal(type, size.value));
  }
  check_fits(size.value, at);
  state_ = state::extended;
  return false;
}

/// The headers behind a body of `size` bytes, which nobody has checked yet, are on their way from memory while this
/// member's is looked at and while the caller is busy with it.
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
    in_.drop();
  }
}

MILLRACE_INLINE bool reader::read_extended() {
  detail::pax_problem problem;
  if (!extended_.read(in_, options_, problem)) return false;
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
  if (MILLRACE_UNLIKELY(out.name.size() > options_.max_name_bytes)) fail(at, "a name is longer than max_name_bytes");
  if (MILLRACE_UNLIKELY(sparse)) return begin_sparse(block, size, at, out);
  if (MILLRACE_UNLIKELY(!out.is_regular())) {
    if (out.type == '\0') resolve_old_type(size, at, out);
    if (!out.is_regular()) return begin_odd(size, at, out);
  }
  out.size = size;
  check_fits(size, at, out.name);
  if (MILLRACE_UNLIKELY(size > options_.max_member_bytes)) {
    fail(at, "the member's " + std::to_string(size) + " bytes are more than max_member_bytes", out.name);
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

/// Old archives tell a directory by its name alone.
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

MILLRACE_INLINE MILLRACE_NOINLINE bool reader::begin_sparse(const char* block, std::uint64_t size, std::uint64_t at,
                                                            entry& out) {
  if (!options_.report_sparse) fail(at, "sparse members are not supported", out.name);
  const bool has_map_blocks = out.type == 'S' && block[482] != 0;
  out.type = 'S';
  out.size = size;
  check_fits(size, at, out.name);
  return put_off(has_map_blocks ? state::sparse_map : state::skip, out);
}

/// The GNU sparse header's further map blocks, which the size field does not count.
MILLRACE_INLINE bool reader::walk_sparse_map() {
  const char* block = take_block();
  if (block == nullptr) return false;
  if (block[504] == 0) {
    member_.data_offset = in_.offset();
    check_fits(member_.size, member_.header_offset, member_.name);
    state_ = state::skip;
  }
  return true;
}

/// Keeps a member until its body has been read or passed over.
MILLRACE_INLINE MILLRACE_NOINLINE bool reader::put_off(state next, entry& out) {
  out.body = bytes();
  body_.begin(out.size);
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

/// All input has been read: says so, or, when no more comes, whether the archive may end here.
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
  if (carried_ != 0 || state_ == state::sparse_map) fail(end, "the archive is cut inside a header");
  if (extended_.pending()) fail(end, "the archive is cut between an extended header and its member");
  if (end == 0 && !options_.allow_empty) fail(end, "the object is empty, not an archive");
  if (options_.require_end_block && !end_block_seen_) fail(end, "the archive has no end-of-archive block");
  state_ = state::end;
  return false;
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
