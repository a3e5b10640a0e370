// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <millrace/memory/bytes.hpp>

namespace millrace {

/// Writable memory with one owner; parts that are filled are shared as `bytes`.
///
/// The owner may go on writing behind what it has shared, never into it: shared ranges are read by others, on other
/// threads too. The memory lives until the buffer and every slice of it are gone.
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

  /// Takes over one reference. For the library's own pools.
  explicit writable_bytes(detail::block* owner) noexcept : owner_(owner) {}

 private:
  detail::block* owner_ = nullptr;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/memory/impl/writable_bytes.ipp>
#endif
