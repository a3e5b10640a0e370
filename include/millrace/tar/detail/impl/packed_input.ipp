// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/packed_input.hpp>

namespace millrace::tar::detail {

MILLRACE_INLINE std::string_view packed_input::next() noexcept {
  remember(current_.view());
  given_ += current_.size();
  current_ = bytes();
  if (next_ == queue_.size()) return {};
  current_ = std::move(queue_[next_]);
  if (++next_ == queue_.size()) {
    queue_.clear();
    next_ = 0;
  }
  return current_.view();
}

MILLRACE_INLINE bool packed_input::unread(std::uint64_t consumed, std::string& out) const {
  const std::uint64_t left = given_ + current_.size() - consumed;
  if (left <= current_.size()) {
    out = current_.view().substr(current_.size() - static_cast<std::size_t>(left));
    return true;
  }
  const std::uint64_t earlier = left - current_.size();
  if (earlier > before_.size()) return false;
  out = before_.substr(before_.size() - static_cast<std::size_t>(earlier));
  out += current_.view();
  return true;
}

MILLRACE_INLINE void packed_input::remember(std::string_view piece) noexcept {
  if (piece.size() >= remembered) {
    before_.assign(piece.data() + piece.size() - remembered, remembered);
    return;
  }
  if (before_.size() + piece.size() > 2 * remembered) before_.erase(0, before_.size() - remembered);
  before_.append(piece.data(), piece.size());  // within what the constructor reserved: allocates nothing
}

}  // namespace millrace::tar::detail
