// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <millrace/coro/item_bytes.hpp>

namespace millrace::detail {

/// What a stage holds, counted in items and bytes, against its bound.
///
/// There is room for one more while both bounds allow it; room in bytes means room for the largest item seen so far,
/// since the next one's size is not known before it is there. So the bound in bytes is exceeded only by an item that is
/// larger than every one before it. A window that holds nothing always has room: no item can block the stream.
class window {
 public:
  window(std::size_t items, std::size_t bytes) noexcept : max_items_(items), max_bytes_(bytes) {}

  bool room() const noexcept {
    if (items_ == 0) return true;
    return items_ < max_items_ && bytes_ <= max_bytes_ && largest_ <= max_bytes_ - bytes_;
  }
  void add(std::size_t bytes) noexcept {
    ++items_;
    bytes_ += bytes;
    largest_ = std::max(largest_, bytes);
  }
  void remove(std::size_t bytes) noexcept {
    --items_;
    bytes_ -= bytes;
  }
  /// An item that was added with `before` bytes holds `after` now.
  void resize(std::size_t before, std::size_t after) noexcept { bytes_ = bytes_ - before + after; }
  /// From now on the next item is expected to have up to `bytes`.
  void expect(std::size_t bytes) noexcept { largest_ = std::max(largest_, bytes); }

  std::size_t items() const noexcept { return items_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  const std::size_t max_items_;
  const std::size_t max_bytes_;
  std::size_t items_ = 0;
  std::size_t bytes_ = 0;
  std::size_t largest_ = 0;
};

/// What a window of `items` items of these types declares as its bytes: the bound where sizes are known.
template <class... Types>
constexpr std::size_t declared_bytes(std::size_t items, std::size_t bytes) noexcept {
  if ((counts_bytes_v<Types> || ...)) return bytes;
  std::size_t each = 0;
  ((each = std::max(each, sizeof(Types))), ...);
  return items > bytes / each ? bytes : items * each;
}

}  // namespace millrace::detail
