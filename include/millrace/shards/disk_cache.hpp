// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/short_text.hpp>
#include <millrace/base/units.hpp>
#include <millrace/cache/disk_slots.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/runtime_counts.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See disk_cache().
struct disk_cache_options {
  short_text<4096> directory;  ///< on a local disk; made, with mode 0700, where it is missing, or empty; no link
  std::uint64_t bytes = 0;     ///< the most that it takes of the disk, or less than it has; must be given
  double keep_free = 0.05;     ///< share of the file system that it leaves free
  bool wait_for_disk = false;  ///< reads wait where the disk is slower than the store, and all that fits is kept
};

namespace detail {

/// State that the reads and the writes of one disk cache share. Any thread.
class disk_cache_state {
 public:
  disk_cache_state(std::string directory, std::uint64_t bytes, double keep_free, bool wait_for_disk = false) noexcept
      : waits(wait_for_disk), directory_(std::move(directory)), bytes_(bytes), keep_free_(keep_free) {}

  /// Opens the folder, as the program makes the cache. Only a network file system is an error.
  void open_first();
  /// The slots; null while the cache is off.
  std::shared_ptr<disk_slots> slots(const executor& ex);
  /// True if the index has all blocks of a range, while the cache is on.
  bool has(const shard& object, const std::string& name, std::uint64_t offset, std::size_t length);
  /// How many bytes of a range the index has; 0 while the cache is off.
  std::uint64_t held(const std::string& name, std::uint64_t offset, std::uint64_t length);
  /// Bytes of blocks that it has room for; 0 while the cache is off.
  std::uint64_t capacity();
  /// True if writes are tried.
  bool may_write(const executor& ex);
  /// Off for a minute, or without writes where those alone fail; logs the reason once.
  void failed(const executor& ex, int error, const std::string& what);
  /// So many blocks got no slot. Logs once that nothing more is admitted.
  void full(const executor& ex, const disk_slots& s, std::uint64_t blocks);
  /// Counts segments that were given to new data, and logs it once.
  void gave(const executor& ex, const disk_slots& s, std::uint64_t segments);
  /// Notes that objects under a prefix are about to be read: also for slots that are opened later.
  void protect(std::string_view prefix);
  /// Log once that objects are not kept: no strong ETag, or a URL too long; the disk is too slow.
  void unversioned(const executor& ex, const shard& object);
  void slow(const executor& ex);
  /// Memory was lacking to write so many blocks, or, with 0, for the steps after that. Logs it once.
  void no_memory(const executor& ex, std::uint64_t blocks) noexcept;

  /// True if `size` more bytes may wait to be written, or will.
  bool may_begin_write(std::size_t size) const noexcept;
  /// Counts them where they may.
  bool begin_write(std::size_t size) noexcept;
  void end_write(std::size_t size) noexcept { writing_.fetch_sub(size, std::memory_order_relaxed); }

  /// How long to wait for a part that another process fetches.
  duration patience() const noexcept;
  void took(duration d) noexcept;

  /// Adds to a counter of this cache, and of the executor's runtime.
  void count(const executor& ex, disk_cache_counts::counter disk_cache_counts::*which, std::uint64_t n) noexcept;
  disk_cache_stats stats() const noexcept { return counts_.stats(); }

  /// The most bytes that wait to be written, in memory.
  static constexpr std::size_t most_writing = std::size_t(64) << 20;

  const bool waits;  ///< reads wait until their data may be written

 private:
  static constexpr duration off_for{60'000'000'000};

  std::shared_ptr<disk_slots> current();
  void opened(std::shared_ptr<disk_slots> s);
  void turn_off(const executor* ex, const std::string& line);

  const std::string directory_;
  const std::uint64_t bytes_;
  const double keep_free_;
  disk_cache_counts counts_;
  std::mutex mutex_;
  std::shared_ptr<disk_slots> slots_;
  url_folders listed_;
  bool off_ = false;
  bool read_only_ = false;
  bool said_full_ = false;
  bool said_gave_ = false;
  bool said_unversioned_ = false;
  bool said_slow_ = false;
  bool said_no_memory_ = false;
  time_point again_{};        // when to try again
  std::string said_;          // why it is off
  std::atomic<std::size_t> writing_{0};
  std::atomic<std::int64_t> part_ns_{0};  // how long parts have taken lately
};

/// Releases the bytes that begin_write() has counted.
class disk_write_share {
 public:
  disk_write_share() noexcept = default;
  disk_write_share(std::shared_ptr<disk_cache_state> state, std::size_t size) noexcept
      : state_(std::move(state)), size_(size) {}
  disk_write_share(disk_write_share&&) noexcept = default;
  disk_write_share& operator=(disk_write_share&&) = delete;
  ~disk_write_share() {
    if (state_ != nullptr) state_->end_write(size_);
  }

 private:
  std::shared_ptr<disk_cache_state> state_;
  std::size_t size_ = 0;
};

}  // namespace detail

/// A store that caches another one on a local disk. See disk_cache().
template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_disk_cache_storage final : public forwarding_storage {
 public:
  basic_disk_cache_storage(std::shared_ptr<const storage> inner, std::shared_ptr<detail::disk_cache_state> state)
      : forwarding_storage(std::move(inner)), state_(std::move(state)) {}

  bool is_local(const shard& object, std::uint64_t offset, std::size_t length) const override {
    return state_->has(object, name_of(object.url), offset, length);
  }
  /// While it is on.
  std::uint64_t caches_on_disk(std::string_view /*url*/) const override { return state_->capacity(); }
  std::uint64_t held_on_disk(const shard& object, std::uint64_t offset, std::uint64_t length) const override {
    return state_->held(name_of(object.url), offset, length);
  }
  async_generator<shard> list(std::string prefix) const override {
    state_->protect(name_of(prefix));
    return this->inner()->list(std::move(prefix));
  }
  /// With the bytes that wait to be written.
  std::size_t keeps() const noexcept override {
    return detail::added(this->inner()->keeps(), detail::disk_cache_state::most_writing);
  }
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    return find_or_read(false, std::move(object), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return find_or_read(true, std::move(object), std::move(etag), 0, length, std::move(slabs));
  }
  /// Reads from the store; the cached part of these bytes is forgotten.
  task<part> read_again(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                        slab_pool slabs) const override;
  /// The store is not asked for it again once all of the object is cached and has agreed with it: delivered bytes are
  /// then compared with the CRC-32C that it had, wherever they come from.
  task<std::unique_ptr<object_check>> check(shard object, std::string etag) const override;

  /// Since it was made. Any thread.
  disk_cache_stats stats() const noexcept { return state_->stats(); }

 private:
  class comparison;
  task<part> find_or_read(bool small, shard object, std::string etag, std::uint64_t offset, std::size_t length,
                          slab_pool slabs) const;
  static task<std::unique_ptr<object_check>> check_of(std::shared_ptr<const storage> inner,
                                                      std::shared_ptr<detail::disk_cache_state> state, std::string name,
                                                      shard object, std::string etag);
  static task<void> admit(std::shared_ptr<detail::disk_cache_state> state, std::shared_ptr<detail::disk_slots> slots,
                          detail::disk_slots::claim own, detail::disk_write_share share, detail::cached_version version,
                          std::uint64_t begin, std::uint64_t blocks, bytes data, bool compared);
  std::string name_of(std::string_view url) const { return detail::cached_name(this->inner()->host(url), url); }

  const std::shared_ptr<detail::disk_cache_state> state_;
};
using disk_cache_storage = basic_disk_cache_storage<>;

#if defined(MILLRACE_SEPARATE_COMPILATION)
extern template class basic_disk_cache_storage<>;
#endif

namespace detail {

MILLRACE_COROUTINE std::shared_ptr<const disk_cache_storage> disk_cache_of(std::shared_ptr<const storage> inner,
                                                                           const disk_cache_options& options);

}  // namespace detail

/// Caches the data of `store` in a folder on a local disk, for this and for later runs, and for all processes of the
/// host that name the same folder. `store` is a storage or an argument of as_storage().
///
///     const auto store = mill::disk_cache(s3, {.directory = "/nvme/mill", .bytes = 2 * mill::TiB});
///     auto training = mill::dataset(store, "s3://bucket/train/") ...
///
/// It keeps the bytes of the objects as the store sent them: order, states and checks are the same as without it. An
/// object's version is compared at every read: one with another ETag is another object, and so is one of another
/// endpoint. An object without a strong ETag, or with a URL of 2.9 KB or more, is not kept. The first part of an object
/// that is named without its ETag is asked of the store, which says it. An object that agreed with the store's checksum
/// once is compared with the CRC-32C that it had then, wherever it comes from, and the store is not asked for its
/// checksum while all of the object is listed here.
///
/// Bound: `bytes` of the disk at most (a folder that takes more already keeps that, and a log line says so), and
/// `keep_free` of the file system stays free when the files grow. Data that does not fit is read from the store in
/// every epoch: nothing of the data that this process reads is evicted, except an older version of the same block. In a
/// full cache new data get the segments (1 GiB; a sixteenth or less of a small cache) that have been unused for
/// longest, of those that no process uses and that hold nothing under the prefixes that this one has listed, or of the
/// folders that it has read. A process uses a segment from its first read there until the storage is destroyed or the
/// process ends, however it does, whatever children it has forked. Up to 64 MiB in memory wait to be written, which
/// run_options::budget counts; a disk that is slower admits less, or is waited for with `wait_for_disk`. One log line
/// says each of these, and one that objects are not kept for their ETags or URLs.
///
/// Concurrency: any threads, loops and processes. If several miss the same bytes at the same time, one fetches, and the
/// others wait about as long as a part takes, then fetch too. Files are read and written past the page cache by the
/// loop, without a copy. Dropping a read drops the fetch; writes that have begun end in the background, and
/// executor::drain() waits for them.
///
/// Errors: those of the store; of the cache none. A slot that is torn, damaged or truncated is a miss, and is read from
/// the store. A disk that fails, is read-only or gone turns the cache off for a minute, with one line in the log; one
/// that is full, and limits of the sizes and numbers of files (ulimit -f, -n), writes alone. A folder that holds other
/// files and no cache, that others may write to, or that is a symbolic link, is left as it is, and the cache is off.
/// Files of the cache that others may read become private. configuration_error without .directory or with .bytes for
/// less than one block, and for a folder on a network file system or FUSE. On a loop without files (virtual time)
/// nothing is cached. A cache of an older format that no process uses is begun anew, and one log line says so; one of a
/// newer format stays as it is, and the cache is off.
template <class Store>
std::shared_ptr<const disk_cache_storage> disk_cache(const Store& store, const disk_cache_options& options) {
  return detail::disk_cache_of(detail::storage_of(store), options);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/disk_cache.ipp>
#endif
