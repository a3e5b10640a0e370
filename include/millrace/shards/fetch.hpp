// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Bounds of what `fetch` reads ahead. How many requests are in flight within them, and how long each is, follows from
/// what the store is seen to give: the defaults are meant to be left alone.
struct fetch_options {
  std::size_t shards = 0;         ///< objects open at once, at most; 0: as many as there are requests for
  std::size_t window = 16 * MiB;  ///< bytes held ahead per open object; shards (or 8) * window is the stage's bound
  std::size_t part = 8 * MiB;     ///< size of one ranged GET and of a slab, at most
  std::size_t requests = 64;      ///< ranged GETs in flight, at most

  std::size_t bytes() const noexcept {
    const std::size_t all = detail::multiplied(shards == 0 ? 8 : shards, window);
    return std::max(all, detail::multiplied(2, part));
  }
};

namespace detail {

/// Several fetch_chunks() of one loop that begin together and are consumed in turn. They share their measurements of
/// the store, and if reads are quick, all together read ahead at first as one alone would.
class fetch_group {
 public:
  explicit fetch_group(std::size_t n) noexcept : readers(n) {}

  /// A read has come, so long after its beginning its first byte; 0 where that is not known.
  void saw(duration first_byte) noexcept {
    seen_ = true;
    if (first_byte > duration(0)) least_ = std::min(least_, first_byte);
  }
  /// True if any read has come.
  bool has_seen() const noexcept { return seen_; }
  /// True if reads have been seen to take little time. The first ones wait for each other in this loop: the quickest
  /// tells.
  bool is_quick() const noexcept { return least_ < std::chrono::milliseconds(10); }

  const std::size_t readers;

 private:
  bool seen_ = false;
  duration least_ = duration::max();
};

/// `start`: the offset at which the reading of every object begins. `group`: it is one of that; may be null.
MILLRACE_COROUTINE async_generator<chunk> fetch_chunks(async_generator<shard> in, std::shared_ptr<const storage> store,
                                                       fetch_options options, std::uint64_t start = 0,
                                                       std::shared_ptr<fetch_group> group = nullptr);

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
/// Bound: options.bytes() bytes, in flight or arrived, until the consumer asks for the next chunk. How many requests
/// are in flight and how long each is follows from what the store is seen to give (detail::read_controller): few parts
/// of options.part from a store nearby, many shorter ones (an eighth at least) from one that is far off or sends little
/// on each connection. It reads further ahead only while the consumer waits, and as long as it then waits less. The
/// first object of all begins with parts of 256 KiB that double: the first chunks come soon. Memory: slabs of
/// options.part bytes and of halves, quarters, eighths of it, recycled, and kept by the runtime for the next run. The
/// parts are spread over the loops of the runtime (`runtime_options::loops`). `store` is a std::shared_ptr<const
/// storage>, or an argument of as_storage() (an s3::client). Errors: whatever the store throws, at the place in the
/// order where the part belongs; changed_error when an object changes under the reader; at the last chunk of an object,
/// in its place, what storage::check() finds wrong with the bytes of all. That last part has not been delivered by
/// then: it is read once more first, over another connection. Parts that were delivered before are not read again; a
/// stage that finds one damaged by itself (untar()) has it read once more, too. Dropping it ends all transfers at once.
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
#include <millrace/shards/fetch.ipp>
#endif
