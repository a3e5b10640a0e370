// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/writable_bytes.hpp>

namespace millrace::tar::detail {

/// The pieces fed and not yet read, as one stream with a position.
class input {
 public:
  explicit input(std::uint64_t start) noexcept : base_(start) {}

  void push(bytes piece) {
    if (piece.empty()) return;
    if (used_ == current_.size() && next_ == queue_.size()) {
      become_current(std::move(piece));
    } else {
      queue_.push_back(std::move(piece));
    }
  }

  /// Offset of the next unread byte.
  std::uint64_t offset() const noexcept { return base_ + used_; }

  /// Unread bytes that lie together. 0 only when everything fed has been read.
  std::size_t together() {
    if (MILLRACE_UNLIKELY(used_ == current_.size())) next_piece();
    return current_.size() - used_;
  }

  /// The same of the current piece alone, which stays where it is.
  std::size_t left() const noexcept { return current_.size() - used_; }

  /// The next byte, one of together(). Valid until the next call that reads.
  const char* here() const noexcept { return current_.data() + used_; }

  /// Passes over n <= together() bytes.
  void advance(std::size_t n) noexcept { used_ += n; }

  /// Passes over n <= together() bytes and shares them. Cheapest when `to` is a slice of the same piece.
  void take(std::size_t n, bytes& to) {
    to.assign_slice(current_, used_, n);
    used_ += n;
  }

  /// Copies up to `most` bytes across pieces; returns how many there were.
  std::size_t copy(char* to, std::size_t most) {
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

  /// Passes over up to `most` bytes across pieces; returns how many there were.
  std::uint64_t skip(std::uint64_t most) {
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

  /// Everything fed has been read: goes on `n` bytes further, but not beyond `limit`, where the input ends.
  void jump(std::uint64_t n, std::uint64_t limit) noexcept {
    release_read();
    if (n != 0) base_ += std::min(n, limit - base_);
  }

  /// Lets go of everything unread.
  void drop() noexcept {
    base_ += current_.size();
    used_ = 0;
    current_ = bytes();
    for (; next_ != queue_.size(); ++next_) base_ += queue_[next_].size();
    queue_.clear();
    next_ = 0;
  }

  /// Frees the current piece as soon as it has been read, so that its slab can be used again.
  void release_read() noexcept {
    if (used_ != current_.size()) return;
    base_ += used_;
    used_ = 0;
    current_ = bytes();
  }

 private:
  MILLRACE_NOINLINE void next_piece() noexcept {
    if (next_ == queue_.size()) return;
    become_current(std::move(queue_[next_]));
    if (++next_ == queue_.size()) {
      queue_.clear();
      next_ = 0;
    }
  }
  void become_current(bytes piece) noexcept {
    base_ += current_.size();
    used_ = 0;
    current_ = std::move(piece);
  }

  bytes current_;
  std::size_t used_ = 0;
  std::uint64_t base_;  // offset of current_'s first byte
  std::vector<bytes> queue_;
  std::size_t next_ = 0;
};

}  // namespace millrace::tar::detail
