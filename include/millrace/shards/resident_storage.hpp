// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See resident().
struct resident_options {
  std::size_t bytes = 0;  ///< the most that is kept; must be given
};

/// A store that caches another one in memory. See resident().
template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_resident_storage final : public forwarding_storage {
 public:
  basic_resident_storage(std::shared_ptr<const storage> inner, const resident_options& options)
      : forwarding_storage(std::move(inner)), most_(options.bytes) {}

  std::size_t keeps() const noexcept override { return most_; }
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    return find_or_read(false, std::move(object), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return find_or_read(true, std::move(object), std::move(etag), 0, length, std::move(slabs));
  }
  /// The part of these bytes that is kept is replaced.
  task<part> read_again(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                        slab_pool slabs) const override;
  /// What is kept of the object that is replaced is dropped, also by remove().
  task<std::string> put(std::string url, async_generator<bytes> content, write_options how) const override {
    return then_drop(this->inner()->put(url, std::move(content), how), url);
  }
  task<void> remove(std::string url) const override { return then_drop(this->inner()->remove(url), url); }

  /// Bytes that are kept now. Any thread.
  std::size_t kept() const;
  /// Drops all of them, so that everything is read again. Any thread.
  void forget() const;

 private:
  struct object_kept {
    std::string etag;
    std::string encoding;
    std::optional<std::uint64_t> total;
    bool whole = false;                     // the object came in one part, which was compared (part::whole)
    std::map<std::uint64_t, bytes> ranges;  // by their first byte; none overlap
  };

  /// The part of an answer that is kept: `pieces`, one after the other.
  struct found {
    part answer;
    std::vector<bytes> pieces;
  };

  task<part> find_or_read(bool small, shard object, std::string etag, std::uint64_t offset, std::size_t length,
                          slab_pool slabs) const;
  /// nullopt if not all of it is kept. Drops a version that is no longer requested.
  std::optional<found> find(const shard& object, const std::string& etag, std::uint64_t offset,
                            std::size_t length) const;
  /// False the first time that there was no room for all of it.
  bool keep(const shard& object, std::uint64_t offset, const part& read) const;
  void drop(object_kept& object) const noexcept;
  template <class T>
  task<T> then_drop(task<T> writing, std::string url) const;
  /// Puts these bytes in the place of those that are kept.
  void replace(const shard& object, std::uint64_t offset, const part& read) const;

  const std::size_t most_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, object_kept> objects_;  // by URL
  mutable std::size_t kept_ = 0;
  mutable bool said_ = false;  // that it is full
};
using resident_storage = basic_resident_storage<>;

#if defined(MILLRACE_SEPARATE_COMPILATION)
extern template class basic_resident_storage<>;
#endif

namespace detail {

MILLRACE_COROUTINE std::shared_ptr<const resident_storage> resident_storage_of(std::shared_ptr<const storage> inner,
                                                                               const resident_options& options);

}  // namespace detail

/// Caches the data of `store` in host memory: only the first epoch is read from the store. `store` is a storage or an
/// argument of as_storage().
///
///     const auto store = mill::resident(s3, {.bytes = 200 * mill::GiB});   // the program's, for all its runs
///     auto training = mill::epochs(indexes, store, {.seed = 7, .epochs = 90, .batch = 256})
///
/// It keeps the bytes of the objects as the store sent them: order, states, augmentation and checks are those of later
/// stages, the same as without it. (cuda::resident_images keeps decoded images.) A rank keeps the bytes that it reads
/// itself: if each reads another share in every epoch, it takes more epochs until nothing is read.
///
/// Memory: `bytes` at most, which run_options::budget counts. Data that does not fit is read from the store in every
/// epoch, which one line in the runtime's log reports. Nothing is evicted, except an object of which another version is
/// requested: the data of the first epoch is kept. Concurrency: any threads and loops; two that miss the same bytes at
/// the same time both read them. Parts of an answer without ranges are not kept. Errors: those of the store;
/// configuration_error where .bytes is 0.
template <class Store>
std::shared_ptr<const resident_storage> resident(const Store& store, const resident_options& options) {
  return detail::resident_storage_of(detail::storage_of(store), options);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/resident_storage.ipp>
#endif
