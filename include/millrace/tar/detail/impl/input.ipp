// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/input.hpp>

namespace millrace::tar::detail {

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
    memory_ = writable_bytes::allocate(wanted);
  }
  done_ += in.copy(memory_.data() + done_, wanted - static_cast<std::size_t>(done_));
  if (done_ != wanted_) return false;
  out = memory_.share(0, wanted);
  memory_ = writable_bytes();
  return true;
}

}  // namespace millrace::tar::detail
