// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>
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
  void take(bytes& piece);
  bytes release();

 private:
  void reserve(std::size_t size);

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

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/detail/impl/cut_parts.ipp>
#endif
