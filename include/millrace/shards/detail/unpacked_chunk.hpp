// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include <millrace/flow/stream.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/shards/chunk.hpp>
#include <millrace/shards/unpack_options.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::detail {

/// A piece of what an object holds: of a compressed one, unpacked, with offsets that count unpacked bytes.
class unpacked_chunk : public chunk {
 public:
  unpacked_chunk() = default;
  explicit unpacked_chunk(chunk c, bool was_packed = false) noexcept : chunk(std::move(c)), packed(was_packed) {}
  bool packed = false;
};

/// unpack_options as a stage keeps them: the pool may end before the pipeline.
class unpack_place {
 public:
  explicit unpack_place(const unpack_options& o) : objects(o.objects), bytes(o.bytes) {
    if (o.on == nullptr) return;
    pool = cpu_pool::share(*o.on);
    if (objects == 0) objects = o.on->threads();
  }
  /// `s`, with the bound where one is stated.
  template <class T>
  stream<T> bound(stream<T> s, const char* name) const {
    return bytes == 0 ? std::move(s) : std::move(s).bounded(name, 1, bytes);
  }

  cpu_pool::share pool;
  std::size_t objects;
  std::size_t bytes;  // 0: as many as the budget has left
};

/// What the first bytes of an object say it is; what it throws stands in the object's place. Compressed objects are
/// unpacked, others go on as they are.
using format_of_head = tar::format (*)(std::string_view head, const shard& of);

}  // namespace millrace::detail
