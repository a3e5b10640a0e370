// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/memory/writable_bytes.hpp>

namespace millrace {

/// The bytes of one decoded item, with one owner: what a std::vector would be if it left new memory as it is and could
/// take memory from a pool (pixel_pool), to which it goes back with its last owner, on whatever thread.
///
/// A copy is deep, with memory of its own from the heap. Moved from, it is empty. A contiguous range:
/// `std::span<std::uint8_t>(buffer)` shows it for as long as the buffer lives and is not assigned to.
class pixel_buffer {
 public:
  using value_type = std::uint8_t;

  /// Empty, without memory.
  pixel_buffer() noexcept = default;
  /// Takes over what `data` holds, without a copy.
  template <class Allocator>
  pixel_buffer(std::vector<std::uint8_t, Allocator> data) : size_(data.size()) {
    if (size_ == 0) return;
    struct held : detail::block {
      std::vector<std::uint8_t, Allocator> bytes;
    };
    auto* const owner = new held;
    owner->bytes = std::move(data);
    owner->data = reinterpret_cast<char*>(owner->bytes.data());
    owner->capacity = owner->bytes.capacity();
    owner->recycle = [](detail::block* b) noexcept { delete static_cast<held*>(b); };
    memory_ = writable_bytes(owner);
  }
  /// The first `size` bytes of `memory`, which are not touched. For pools and decoders.
  pixel_buffer(writable_bytes memory, std::size_t size) : memory_(std::move(memory)), size_(size) {
    if (size > memory_.capacity()) detail::misused("a pixel_buffer is larger than its memory");
  }
  /// `size` bytes from the heap, not zeroed. Throws std::bad_alloc.
  static pixel_buffer allocate(std::size_t size) {
    return size == 0 ? pixel_buffer() : pixel_buffer(writable_bytes::allocate(size), size);
  }

  pixel_buffer(pixel_buffer&& other) noexcept
      : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}
  pixel_buffer(const pixel_buffer& other) : pixel_buffer(allocate(other.size_)) {
    if (size_ != 0) std::memcpy(data(), other.data(), size_);
  }
  pixel_buffer& operator=(pixel_buffer other) noexcept;
  ~pixel_buffer() = default;

  std::uint8_t* data() noexcept { return reinterpret_cast<std::uint8_t*>(memory_.data()); }
  const std::uint8_t* data() const noexcept { return reinterpret_cast<const std::uint8_t*>(memory_.data()); }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::uint8_t* begin() noexcept { return data(); }
  std::uint8_t* end() noexcept { return data() + size_; }
  const std::uint8_t* begin() const noexcept { return data(); }
  const std::uint8_t* end() const noexcept { return data() + size_; }
  std::uint8_t& operator[](std::size_t i) noexcept { return data()[i]; }
  const std::uint8_t& operator[](std::size_t i) const noexcept { return data()[i]; }

  friend bool operator==(const pixel_buffer& a, const pixel_buffer& b) noexcept {
    return a.size_ == b.size_ && (a.size_ == 0 || std::memcmp(a.data(), b.data(), a.size_) == 0);
  }

 private:
  writable_bytes memory_;
  std::size_t size_ = 0;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/memory/impl/pixel_buffer.ipp>
#endif
