// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <millrace/base/compiler.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Reads what an index needs of a video file, whose bytes it asks for.
class video_parser {
 public:
  virtual ~video_parser() = default;
  /// Takes what it can of `window`, the bytes of the object from `at` on. They begin at wanted(), or before it.
  virtual void look(std::string_view window, std::uint64_t at) = 0;
  /// True if it needs no more.
  virtual bool done() const noexcept = 0;
  /// The byte of the object from which it needs the next ones.
  std::uint64_t wanted() const noexcept { return wanted_; }
  /// And how many it needs to go on.
  std::uint64_t wanted_bytes() const noexcept { return wanted_bytes_; }

 protected:
  std::uint64_t wanted_ = 0;
  std::uint64_t wanted_bytes_ = 0;
};

}  // namespace millrace::inline MILLRACE_ABI::detail
