// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/chunk.hpp>
#include <millrace/shards/detail/storage_of.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace {

/// How far `fetch` reads ahead, at most: it begins with two parts, and reads further ahead only while that saves its
/// consumer waiting.
struct fetch_options {
  std::size_t shards = 8;         ///< objects open at once, at most
  std::size_t window = 16 * MiB;  ///< bytes held ahead per open object; shards * window is the bound of the stage
  std::size_t part = 8 * MiB;     ///< size of one ranged GET and of a slab

  std::size_t bytes() const noexcept { return shards * window < 2 * part ? 2 * part : shards * window; }
};

namespace detail {

/// `start`: the offset at which the reading of every object begins.
MILLRACE_COROUTINE async_generator<chunk> fetch_chunks(async_generator<shard> in, std::shared_ptr<const storage> store,
                                                       fetch_options options, std::uint64_t start = 0);

/// The stage object of fetch().
class fetch_stage : public library_stage {
 public:
  fetch_stage(std::shared_ptr<const storage> store, fetch_options options);
  /// For the compiler's message: why it does not take items of type T.
  template <class T>
  static constexpr void explain() {
    static_assert(never_v<T>,
                  "fetch takes shards: a source of them comes first, as in client.list(\"s3://bucket/prefix\") | "
                  "fetch(client)");
  }
  MILLRACE_COROUTINE stream<chunk> operator()(async_generator<shard> in) const;

 private:
  std::shared_ptr<const storage> store_;
  fetch_options options_;
};

}  // namespace detail

/// Stage: shards -> chunks. Reads objects ahead, several at a time and by parts, and yields their pieces in the order
/// of the shards, whatever the timing of the network.
///
/// Bound: options.shards objects and options.bytes() bytes, in flight or arrived, until the consumer asks for the next
/// chunk. It begins with two parts, and reads further ahead only while the consumer waits, and as long as it then waits
/// less. The first object of all begins with parts of 256 KiB that double up to options.part: the first chunks come
/// soon. Memory: slabs of options.part bytes, recycled, and kept by the runtime for the next run. The parts are spread
/// over the loops of the runtime (`runtime({.loops = n})`). `store` is a std::shared_ptr<const storage>, or what
/// as_storage() makes one of (an s3::client). Errors: whatever the store throws, at the place in the order where the
/// part belongs; changed_error when an object changes under the reader; at the last chunk of an object, in its place,
/// what storage::check() finds wrong with the bytes of all. Dropping it ends all transfers at once.
template <class Store>
detail::fetch_stage fetch(const Store& store, fetch_options options = {}) {
  return detail::fetch_stage(detail::storage_of(store), options);
}
/// For the compiler's message.
template <class T = void>
detail::refused fetch(const fetch_options& = {}) {
  static_assert(detail::never_v<T>,
                "fetch needs the store to read from, before its options: fetch(client), fetch(files(), {.shards = 4})");
  return {};
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/fetch.ipp>
#endif
