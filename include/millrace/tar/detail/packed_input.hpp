// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/memory/bytes.hpp>

namespace millrace::tar::detail {

inline bool is_zero(std::string_view text) noexcept { return text.find_first_not_of('\0') == std::string_view::npos; }

/// The pieces fed to a library that wants one whole piece at a time and keeps looking at it until it asks for the next.
/// Remembers a little of what went before, to look at what the library left unread at its end.
class packed_input {
 public:
  packed_input() { before_.reserve(2 * remembered); }

  void push(bytes piece) {
    if (!piece.empty() && !ended_) queue_.push_back(std::move(piece));
  }
  void end() noexcept { ended_ = true; }

  /// True when nothing can be given and more may come.
  bool starved() const noexcept { return next_ == queue_.size() && !ended_; }

  /// The next piece, valid until the next call; empty at the end. The one before is let go.
  std::string_view next() noexcept;

  /// Bytes of the pieces before the current one.
  std::uint64_t before() const noexcept { return given_; }

  /// The bytes given from offset `consumed` on. False when they are not all remembered: read that far ahead, what
  /// follows can be nothing good.
  bool unread(std::uint64_t consumed, std::string& out) const;

 private:
  static constexpr std::size_t remembered = 4096;

  void remember(std::string_view piece) noexcept;

  std::vector<bytes> queue_;
  std::size_t next_ = 0;
  bytes current_;
  bool ended_ = false;
  std::uint64_t given_ = 0;  // bytes of the pieces before current_
  std::string before_;
};

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/impl/packed_input.ipp>
#endif
