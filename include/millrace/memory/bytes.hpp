// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/memory/detail/block.hpp>

namespace millrace {

/// An immutable, reference-counted slice of memory: what flows through a pipeline instead of copies.
///
/// Copying and slicing cost one atomic increment. The memory behind it (a slab of the transport, or an allocation of
/// its own) lives until the last slice goes, on whatever thread that happens. A small slice keeps its whole slab
/// alive: to keep slices for long, compact() them.
class bytes {
 public:
  bytes() noexcept = default;
  bytes(const bytes& other) noexcept : owner_(other.owner_), data_(other.data_), size_(other.size_) {
    if (owner_ != nullptr) owner_->add_ref();
  }
  bytes(bytes&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  bytes& operator=(bytes other) noexcept {
    swap(other);
    return *this;
  }
  ~bytes() {
    if (owner_ != nullptr) owner_->release();
  }

  /// A slice with memory of its own holding a copy of `text`.
  static bytes copy(std::string_view text);

  const char* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::string_view view() const noexcept { return {data_, size_}; }
  std::span<const std::byte> span() const noexcept { return {reinterpret_cast<const std::byte*>(data_), size_}; }
  const char* begin() const noexcept { return data_; }
  const char* end() const noexcept { return data_ + size_; }

  /// The part [offset, offset + length), sharing the memory. usage_error where that is not inside.
  bytes slice(std::size_t offset, std::size_t length) const;

  /// Becomes what whole.slice(offset, length) is. No count is touched where this is a slice of the same memory already,
  /// as one that wanders over a slab is.
  void assign_slice(const bytes& whole, std::size_t offset, std::size_t length);

  /// Bytes that this slice keeps from being reused: the capacity of the memory behind it.
  std::size_t retained() const noexcept { return owner_ == nullptr ? 0 : owner_->capacity; }

  /// Which memory that is: equal for two slices of one slab. To be compared, not looked into.
  const void* memory() const noexcept { return owner_; }
  /// How often that memory has been handed out before.
  std::uint32_t use() const noexcept { return owner_ == nullptr ? 0 : owner_->use; }

  /// A slice that retains about what it shows: itself when at least half of the memory behind it is shown, else a copy.
  bytes compact() const { return retained() / 2 > size_ ? copy(view()) : *this; }

  // What stages ask of their items, see flow/shuffle.hpp, flow/buffer.hpp and coro/item_bytes.hpp.
  friend std::size_t byte_size(const bytes& slice) noexcept { return slice.size(); }
  friend bytes compact(const bytes& slice) { return slice.compact(); }
  friend const bytes* slice_of(const bytes& slice) noexcept { return &slice; }

  /// Takes over one reference to `owner`. For the library's own buffers.
  bytes(detail::block* owner, const char* data, std::size_t size) noexcept : owner_(owner), data_(data), size_(size) {}

  void swap(bytes& other) noexcept;

 private:
  detail::block* owner_ = nullptr;
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/memory/impl/bytes.ipp>
#endif
