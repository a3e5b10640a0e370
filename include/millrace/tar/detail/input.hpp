// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

  void push(bytes piece);

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
  std::size_t copy(char* to, std::size_t most);

  /// Passes over up to `most` bytes across pieces; returns how many there were.
  std::uint64_t skip(std::uint64_t most);

  /// Everything fed has been read: goes on `n` bytes further, but not beyond `limit`, where the input ends.
  void jump(std::uint64_t n, std::uint64_t limit) noexcept {
    release_read();
    if (n != 0) base_ += std::min(n, limit - base_);
  }

  /// Lets go of everything unread.
  void drop() noexcept;

  /// Frees the current piece as soon as it has been read, so that its slab can be used again.
  void release_read() noexcept;

 private:
  void next_piece() noexcept;
  void become_current(bytes piece) noexcept;

  bytes current_;
  std::size_t used_ = 0;
  std::uint64_t base_;  // offset of current_'s first byte
  std::vector<bytes> queue_;
  std::size_t next_ = 0;
};

/// A body that was not all there when its header was read: shared if it still turns out to lie in one piece, gathered
/// into memory of its own if not, or passed over.
class body_collector {
 public:
  void begin(std::uint64_t size) noexcept {
    wanted_ = size;
    done_ = 0;
  }

  /// True when `out` is the whole body; false: more input is needed.
  bool collect(input& in, bytes& out);

  /// True when the whole body has been passed over.
  bool skip(input& in) {
    done_ += in.skip(wanted_ - done_);
    return done_ == wanted_;
  }

  /// Passes over what is there; says how many bytes more that is not, and takes them for passed over.
  std::uint64_t jump(input& in) {
    skip(in);
    return wanted_ - std::exchange(done_, wanted_);
  }

  void drop() noexcept { memory_ = writable_bytes(); }

 private:
  writable_bytes memory_;
  std::uint64_t wanted_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/impl/input.ipp>
#endif
