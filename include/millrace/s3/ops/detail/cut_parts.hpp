// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::s3::detail {

/// A part of an object that is being stored.
class object_chunk {
 public:
  object_chunk(std::uint64_t part_number, std::uint64_t first_byte, bytes body, bool is_last)
      : number(part_number), offset(first_byte), data(std::move(body)), last(is_last) {}

  std::uint64_t number;  ///< from 1
  std::uint64_t offset;  ///< of its first byte in the object
  bytes data;
  bool last;

  friend std::size_t byte_size(const object_chunk& c) noexcept { return c.data.size(); }
};

/// Where the bytes of one part are collected. It begins small and becomes a slab only when a part needs one.
class part_buffer {
 public:
  part_buffer(std::size_t part, slab_pool& slabs) noexcept : part_(part), slabs_(slabs) {}

  bool empty() const noexcept { return filled_ == 0; }
  bool full() const noexcept { return filled_ == part_; }

  /// Takes what fits from the front of `piece`.
  void take(bytes& piece) {
    const std::size_t n = std::min(piece.size(), part_ - filled_);
    if (whole_.empty() && filled_ == 0 && n == part_) {
      whole_ = piece.slice(0, n);  // a part in one piece is not copied
    } else {
      reserve(filled_ + n);
      std::memcpy(memory_.data() + filled_, piece.data(), n);
    }
    filled_ += n;
    piece = piece.slice(n, piece.size() - n);
  }
  bytes release() {
    bytes out = whole_.empty() ? memory_.share(0, filled_) : std::move(whole_);
    whole_ = bytes();
    memory_ = writable_bytes();
    filled_ = 0;
    return out;
  }

 private:
  void reserve(std::size_t size) {
    if (memory_.capacity() >= size) return;
    const std::size_t small = std::min(part_, 256 * KiB);
    writable_bytes larger = size <= small ? writable_bytes::allocate(small) : slabs_.acquire();
    if (filled_ > 0) std::memcpy(larger.data(), memory_.data(), filled_);
    memory_ = std::move(larger);
  }

  const std::size_t part_;
  slab_pool& slabs_;
  writable_bytes memory_;
  bytes whole_;
  std::size_t filled_ = 0;
};

/// Cuts a stream into parts of `part` bytes; only the last is shorter. An empty stream gives one empty part. One part
/// is given out only when something follows it or the stream has ended, so that the last is known as such. With `size`,
/// a stream of another length throws.
template <class Generator, class Chunk = object_chunk>
async_generator<Chunk> cut_parts(Generator content, std::size_t part, std::optional<std::uint64_t> size, where at) {
  slab_pool slabs(part);
  part_buffer buffer(part, slabs);
  std::uint64_t number = 0;
  std::uint64_t total = 0;
  for (;;) {
    auto piece = co_await content.next();
    if (!piece) break;
    total += piece->size();
    if (size && total > *size) {
      at.offset = *size;
      throw millrace::error("the stream goes on behind the " + std::to_string(*size) + " bytes that it was to hold",
                            at);
    }
    while (!piece->empty()) {
      if (buffer.full()) {
        Chunk chunk(number + 1, number * part, buffer.release(), false);
        ++number;
        co_yield give(chunk);
      }
      buffer.take(*piece);
    }
  }
  if (size && total < *size) {
    at.offset = total;
    throw millrace::error("the stream ends before the " + std::to_string(*size) + " bytes that it was to hold", at);
  }
  Chunk chunk(number + 1, number * part, buffer.release(), true);
  co_yield give(chunk);
}

}  // namespace millrace::s3::detail
