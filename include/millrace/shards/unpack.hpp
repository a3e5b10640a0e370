// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include <millrace/flow/stream.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI {

/// How compressed objects are unpacked, by untar() and lines(): several at a time on a pool, delivered in their order.
/// While the first one is delivered, the next ones are read and unpacked ahead, within `bytes`; the first always
/// continues. So several cores are busy if `bytes` holds as many unpacked objects; one object keeps one core busy.
struct unpack_options {
  pool_ref on = nullptr;    ///< must outlive the pipeline; none: the runtime's pool, or the thread of a bare loop
  std::size_t objects = 0;  ///< unpacked at once; 0: as many as the pool has threads
  /// Bytes of pieces that wait, declared as the stage's bound: compressed ones take at most half of it, unpacked ones
  /// the rest. 0: nothing is declared, since shards may be plain; from the first compressed one on 256 MiB, or half of
  /// the rest of the run's memory budget, if that is less.
  std::size_t bytes = 0;
};

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// A piece of an object's contents: of a compressed one, unpacked, with offsets that count unpacked bytes.
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

/// The format that an object's first bytes show; its exception is delivered in place of the object. Compressed objects
/// are unpacked, others pass through.
using format_of_head = tar::format (*)(std::string_view head, const shard& of);

}  // namespace millrace::detail
