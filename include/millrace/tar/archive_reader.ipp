// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/archive_reader.hpp>
#include <millrace/tar/detail/other_kinds.hpp>
#include <millrace/tar/detail/unpacker.hpp>

namespace millrace::inline MILLRACE_ABI::tar {

MILLRACE_INLINE void archive_reader::feed(bytes piece) {
  if (piece.empty() || closed_) return;
  if (decided_) {
    forward(std::move(piece));
    return;
  }
  head_.append(piece.data(), std::min(piece.size(), detect_bytes - head_.size()));
  waiting_.push_back(std::move(piece));
  if (head_.size() == detect_bytes) decide(detect(head_));
}

MILLRACE_INLINE bool archive_reader::next(entry& out) {
  if (MILLRACE_UNLIKELY(has_pending_)) {
    std::swap(out, pending_);
    has_pending_ = false;
    return true;
  }
  return step(out);
}

MILLRACE_INLINE void archive_reader::finish() {
  if (ended_) return;
  ended_ = true;
  if (!decided_) decide(head_.empty() ? format::tar : detect(head_));
  if (unpacker_ != nullptr) {
    unpacker_->end_input();
  } else if (kind_ == format::tar) {
    reader_.finish();
  }
  has_pending_ = step(pending_);
}

MILLRACE_INLINE bool archive_reader::done() const noexcept {
  return !has_pending_ &&
         (unpacker_ == nullptr ? reader_.done()
                               : closed_ && !failed_ && (!detail::is_compression(kind_) || reader_.done()));
}

MILLRACE_INLINE std::string_view archive_reader::warning() const noexcept {
  if (!done()) return {};
  return unpacker_ == nullptr || detail::is_compression(kind_) ? reader_.warning() : std::string_view();
}

MILLRACE_INLINE void archive_reader::decide(format kind) {
  decided_ = true;
  kind_ = kind;
  if (kind == format::unknown || kind == format::seven_zip) {
    waiting_.clear();
    return;
  }
  if (kind != format::tar) {
    unpacker_ = std::make_unique<detail::unpacker>(kind, options_, pool_, head_);
    reader_options inner = options_.members;
    inner.object_bytes = 0;
    reader_ = reader(object_, inner);
  }
  for (bytes& piece : waiting_) forward(std::move(piece));
  waiting_.clear();
}

MILLRACE_INLINE void archive_reader::forward(bytes piece) {
  if (unpacker_ != nullptr) {
    unpacker_->feed(std::move(piece));
  } else if (kind_ == format::tar) {
    reader_.feed(std::move(piece));
  }
}

MILLRACE_INLINE bool archive_reader::step(entry& out) {
  if (!decided_) return false;
  if (kind_ == format::unknown || kind_ == format::seven_zip) refuse();
  if (unpacker_ == nullptr) return reader_.next(out);
  if (!detail::is_compression(kind_)) return step_members(out);
  for (;;) {
    if (reader_.next(out)) return true;
    if (failed_) throw_failure();
    if (closed_) {
      if (inner_finished_) return false;
      inner_finished_ = true;
      reader_.finish();
      continue;
    }
    const detail::unpacker::event event = unpacker_->run();
    bytes data = unpacker_->take_data();
    const bool some = !data.empty();
    reader_.feed(std::move(data));
    if (event == detail::unpacker::event::hungry && !some) return false;
    closed_ = event == detail::unpacker::event::done || event == detail::unpacker::event::failed;
    failed_ = event == detail::unpacker::event::failed;
  }
}

MILLRACE_INLINE bool archive_reader::step_members(entry& out) {
  if (failed_) throw_failure();
  if (closed_) return false;
  switch (unpacker_->run()) {
    case detail::unpacker::event::member:
      unpacker_->take_member(out);
      return true;
    case detail::unpacker::event::done:
      closed_ = true;
      return false;
    case detail::unpacker::event::failed:
      closed_ = failed_ = true;
      throw_failure();
    default:
      return false;
  }
}

MILLRACE_INLINE void archive_reader::refuse() const {
  if (kind_ == format::seven_zip) {
    throw archive_error("7z archives are not supported: their directory is at the end", where{object_, 0, {}});
  }
  throw archive_error("not an archive of a known kind" + detail::not_but(head_), where{object_, 0, {}});
}

}  // namespace millrace::tar
