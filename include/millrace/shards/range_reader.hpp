// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/shards/detail/second_reading.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Reads ranges of the objects of one store. Everything that reads parts of objects uses it: fetch(), epochs(), the
/// making and reading of indexes, resuming. A scheduler decides when a range is its turn, and awaits read() then.
///
/// An object is named by a `shard`. Its ETag and size are what every answer must have; those that are not known are
/// filled in by the first answer. The shard must outlive the tasks that read it, and is used on their executor only.
///
/// A copy reads from the same store into the same pools. Concurrency: any number of ranges at once, of the same object
/// too. Each takes one slab, and one request at the store: bounds are the caller's. It runs on the runtime's next loop,
/// if the store allows that, and returns to the executor that awaits it.
class range_reader {
 public:
  explicit range_reader(std::shared_ptr<const storage> store) noexcept : store_(std::move(store)) {}

  const storage& store() const noexcept { return *store_; }

  /// From now on what read() reads without a pool is summed by blocks on the way (slab_pool::summed()).
  void sum_blocks() noexcept { summed_ = true; }

  /// Bytes of memory that reading `length` bytes without a pool takes: a slab of a power of two, at least 64 KiB.
  static std::size_t slab_for(std::size_t length) noexcept {
    return std::bit_ceil(std::max<std::size_t>(length, 64 * KiB));
  }

  /// A pool of slabs of so many bytes: the runtime's from `whole` on, else a half, a quarter, ... of those of `whole`.
  slab_pool pool_of(runtime_parts& runtime, std::size_t slab_bytes,
                    std::size_t whole = slab_pool::default_slab_bytes);

  /// The error about a range of which too little came.
  static io_error short_read(std::uint64_t came, std::uint64_t due, where at);

  /// Which function of the store a range is read by; read_small() is for one that begins at 0.
  enum class by : std::uint8_t { read, read_again, read_small };

  /// Bytes [offset, offset + length) of `object`, fewer only if the object ends before; `length` is at most a slab of
  /// `slabs`. Without `slabs` the slab is one of slab_for(length) bytes, of the runtime's; one below 8 MiB is a half, a
  /// quarter, ... of one of these, so that short and long ranges use the same memory in turn; storage::part::crc is not
  /// computed then. If the store sent the whole object instead, storage::part::rest is set: whether that will do is for
  /// the caller to say. The bytes are counted as the stage's (stage_record::read).
  ///
  /// Dropping the task ends the transfer. Errors: the store's; changed_error if the answer is of another version or
  /// size; io_error if it is not as long as it must be.
  MILLRACE_COROUTINE task<storage::part> read(shard& object, std::uint64_t offset, std::size_t length,
                                              std::optional<slab_pool> slabs = std::nullopt,
                                              by function = by::read);

  /// Reads these bytes of `object` again, over a fresh connection, into memory of their own; `why` is the error that
  /// the first reading led to, for the log. Counted as the stage's (stage_record::reread). A reading that fails is not
  /// an error: second_reading::note says why. Data that does not come over a network is not read again.
  MILLRACE_COROUTINE task<second_reading> read_again(shard object, std::vector<byte_stretch> at, std::string why) const;

 private:
  /// The answer must be of the object's version and size, and as long as was asked for.
  static void check(shard& object, const storage::part& p, std::uint64_t offset, std::size_t length);

  std::shared_ptr<const storage> store_;
  bool summed_ = false;
  std::vector<slab_pool> pools_;  // one of each size that was needed; short slabs are cut from those of 8 MiB
};

/// The source of the pieces of an object that fetch() reads, for a stage that finds one damaged.
class chunk_source {
 public:
  chunk_source(range_reader reader, std::shared_ptr<const shard> object)
      : reader_(std::move(reader)), object_(std::move(object)) {}

  /// The version that is read.
  void set_version(const std::string& etag) {
    if (etag_.empty()) etag_ = etag;
  }
  /// As range_reader::read_again(), of the bytes from `begin` on that `first` has, and compares with these.
  MILLRACE_COROUTINE task<second_reading> read(std::uint64_t begin, bytes first, std::string why) const;
  /// Corrects the bytes from `begin` on. For the piece that was delivered last.
  void mend(std::uint64_t begin, bytes data) {
    mended_at_.push_back(begin);
    mended_.push_back(std::move(data));
  }
  /// The piece from `begin` on with its corrections, which are then forgotten; false if there are none.
  bool take_mended(std::uint64_t begin, bytes& piece);

 private:
  const range_reader reader_;
  const std::shared_ptr<const shard> object_;
  std::string etag_;
  std::vector<std::uint64_t> mended_at_;
  std::vector<bytes> mended_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/range_reader.ipp>
#endif
