// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/detail/block_sums.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE block* allocate_block(std::size_t capacity) {
  if (capacity > SIZE_MAX - sizeof(block)) throw std::bad_alloc();
  void* memory = std::malloc(sizeof(block) + capacity);
  if (memory == nullptr) throw std::bad_alloc();
  auto* b = new (memory) block();
  b->data = static_cast<char*>(memory) + sizeof(block);
  b->capacity = capacity;
  b->recycle = [](block* self) noexcept {
    self->~block();
    std::free(self);
  };
  return b;
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE bytes bytes::copy(std::string_view text) {
  if (text.empty()) return bytes();
  detail::block* b = detail::allocate_block(text.size());
  std::memcpy(b->data, text.data(), text.size());
  return bytes(b, b->data, text.size());
}

MILLRACE_INLINE bytes bytes::slice(std::size_t offset, std::size_t length) const {
  if (MILLRACE_UNLIKELY(offset > size_ || length > size_ - offset)) detail::misused("bytes::slice outside the slice");
  if (length == 0) return bytes();
  if (owner_ != nullptr) owner_->add_ref();
  return bytes(owner_, data_ + offset, length);
}

MILLRACE_INLINE void bytes::assign_slice(const bytes& whole, std::size_t offset, std::size_t length) {
  if (MILLRACE_UNLIKELY(owner_ != whole.owner_ || owner_ == nullptr || length == 0)) {
    *this = whole.slice(offset, length);
    return;
  }
  if (MILLRACE_UNLIKELY(offset > whole.size_ || length > whole.size_ - offset)) {
    detail::misused("bytes::assign_slice outside the slice");
  }
  data_ = whole.data_ + offset;
  size_ = length;
}

MILLRACE_INLINE std::uint32_t bytes::crc32c() const noexcept {
  if (owner_ == nullptr || owner_->sums == nullptr) return millrace::crc32c(0, data_, size_);
  const auto begin = static_cast<std::size_t>(data_ - owner_->data);
  return owner_->sums->crc32c_of(owner_->data, begin, begin + size_);
}

MILLRACE_INLINE void writable_bytes::sum(std::size_t offset, const char* data, std::size_t length) noexcept {
  owner_->sums->add(offset, data, length);
}

MILLRACE_INLINE void writable_bytes::sum(std::size_t offset, std::uint32_t crc, std::size_t length) noexcept {
  owner_->sums->add(offset, crc, length);
}

MILLRACE_INLINE void bytes::swap(bytes& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

MILLRACE_INLINE writable_bytes& writable_bytes::operator=(writable_bytes&& other) noexcept {
  writable_bytes taken(std::move(other));  // not a plain swap: the old memory is released now, not when `other` is
  std::swap(owner_, taken.owner_);
  return *this;
}

MILLRACE_INLINE bytes writable_bytes::share(std::size_t offset, std::size_t length) const {
  if (offset > capacity() || length > capacity() - offset) detail::misused("writable_bytes::share outside the buffer");
  if (length == 0) return bytes();
  owner_->add_ref();
  return bytes(owner_, owner_->data + offset, length);
}

}  // namespace millrace
