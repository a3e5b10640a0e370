// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

class block_sums;

/// A reference-counted block of memory, shared by `bytes` and `writable_bytes`. Dropping the last reference calls
/// recycle(), on whatever thread that happens.
struct block {
  std::atomic<std::uint32_t> refs{1};
  std::uint32_t use = 0;  // how often a pool has lent it
  char* data = nullptr;
  std::size_t capacity = 0;
  void (*recycle)(block*) noexcept = nullptr;
  block_sums* sums = nullptr;            // by whatever fills the block, if it is to be summed
  std::atomic<std::uint64_t> given{0};  // see bytes::given()

  void add_ref() noexcept { refs.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1) recycle(this);
  }
};

/// One allocation holding the block and its payload.
block* allocate_block(std::size_t capacity);

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// An immutable, reference-counted slice of memory. Pipelines pass these instead of copies.
///
/// Copying and slicing cost one atomic increment. The memory (a slab of the transport, or an allocation of its own)
/// lives until the last slice is dropped, on any thread. A small slice keeps its whole slab alive: to keep slices for
/// long, compact() them.
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

  /// The part [offset, offset + length), sharing the memory. usage_error if that is not inside.
  bytes slice(std::size_t offset, std::size_t length) const;

  /// Assigns whole.slice(offset, length). The reference count is not touched if this is a slice of the same memory
  /// already.
  void assign_slice(const bytes& whole, std::size_t offset, std::size_t length);

  /// Bytes that this slice keeps from being reused: the capacity of its memory.
  std::size_t retained() const noexcept { return owner_ == nullptr ? 0 : owner_->capacity; }

  /// Identifies that memory: equal for two slices of one slab. For comparison, not for access.
  const void* memory() const noexcept { return owner_; }
  /// How often a pool has lent that memory before.
  std::uint32_t use() const noexcept { return owner_ == nullptr ? 0 : owner_->use; }

  /// The CRC-32C of the slice. If the sums of its blocks are known (slab_pool::summed()), it is made of them, and
  /// little of the slice is read.
  std::uint32_t crc32c() const noexcept;

  /// The bytes that the source of these slices had yielded in all when it yielded the latest one of this memory: a
  /// stage compares them with the bytes that it has seen, to know its share. 0: not counted.
  std::uint64_t given() const noexcept {
    return owner_ == nullptr ? 0 : owner_->given.load(std::memory_order_relaxed);
  }
  /// For sources.
  void set_given(std::uint64_t total) const noexcept {
    if (owner_ != nullptr) owner_->given.store(total, std::memory_order_relaxed);
  }

  /// A slice that keeps little more memory than its size: itself if it is at least half of its memory, else a copy.
  bytes compact() const { return retained() / 2 > size_ ? copy(view()) : *this; }

  // Functions that stages look for, see flow/shuffle.hpp, flow/buffer.hpp and coro/item_bytes.hpp.
  friend std::size_t byte_size(const bytes& slice) noexcept { return slice.size(); }
  friend bytes compact_slices(const bytes& slice) { return slice.compact(); }
  friend const bytes* slice_of(const bytes& slice) noexcept { return &slice; }

  /// Takes over one reference to `owner`. For the library's own buffers.
  bytes(detail::block* owner, const char* data, std::size_t size) noexcept : owner_(owner), data_(data), size_(size) {}

  void swap(bytes& other) noexcept;

 private:
  detail::block* owner_ = nullptr;
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Writable memory with one owner; parts that are filled are shared as `bytes`.
///
/// The owner may keep writing after the ranges that it has shared, never into them: others read those, on other threads
/// too. The memory lives until the buffer and every slice of it are gone.
class writable_bytes {
 public:
  writable_bytes() noexcept = default;
  writable_bytes(writable_bytes&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
  writable_bytes& operator=(writable_bytes&& other) noexcept;
  ~writable_bytes() {
    if (owner_ != nullptr) owner_->release();
  }

  /// Memory from the heap, not zeroed.
  static writable_bytes allocate(std::size_t capacity) { return writable_bytes(detail::allocate_block(capacity)); }

  explicit operator bool() const noexcept { return owner_ != nullptr; }
  char* data() noexcept { return owner_ == nullptr ? nullptr : owner_->data; }
  const char* data() const noexcept { return owner_ == nullptr ? nullptr : owner_->data; }
  std::size_t capacity() const noexcept { return owner_ == nullptr ? 0 : owner_->capacity; }

  /// The filled part [offset, offset + length) as an immutable slice.
  bytes share(std::size_t offset, std::size_t length) const;

  /// Call before, or while, bytes [offset, offset + length) are written, which are those at `data`: they are summed,
  /// if the memory is of slab_pool::summed().
  void note_filled(std::size_t offset, const char* data, std::size_t length) noexcept {
    if (owner_ != nullptr && owner_->sums != nullptr) sum(offset, data, length);
  }

  /// True if blocks are summed: then bytes::crc32c() of the shared slices is cheap.
  bool is_summed() const noexcept { return owner_ != nullptr && owner_->sums != nullptr; }

  /// Takes over one reference. For the library's own pools.
  explicit writable_bytes(detail::block* owner) noexcept : owner_(owner) {}

  /// In place of that, if the CRC-32C of these bytes is known. `offset` is a multiple of 4 KiB, and `length` is 4
  /// KiB, or less at the end of the filled part.
  void note_filled(std::size_t offset, std::uint32_t crc, std::size_t length) noexcept {
    if (owner_ != nullptr && owner_->sums != nullptr) sum(offset, crc, length);
  }

 private:
  void sum(std::size_t offset, const char* data, std::size_t length) noexcept;
  void sum(std::size_t offset, std::uint32_t crc, std::size_t length) noexcept;

  detail::block* owner_ = nullptr;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/memory/bytes.ipp>
#endif
