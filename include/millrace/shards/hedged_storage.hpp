// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// How long recent parts took, by size, and how many second requests are still allowed. Thread-safe.
class part_times {
 public:
  static constexpr std::size_t kept = 64;   ///< of each size
  static constexpr std::size_t least = 20;  ///< with fewer nothing is called slow

  /// See hedge_options.
  part_times(double factor, duration soonest, double extra) noexcept
      : factor_(factor), soonest_(soonest), extra_(extra) {}

  /// One more request begins: after which time it is slow; nothing while that is not known.
  std::optional<duration> patience(std::size_t length);

  /// The right to a second request.
  bool take();

  /// A part of `length` bytes has come.
  void came(std::size_t length, duration took);

 private:
  static constexpr double most_allowed = 4;  // saved up in quiet times
  struct sizes {
    /// The one that 95 of 100 do not exceed: among at most 64 one of the four longest.
    duration percentile_95() const noexcept;

    duration times[kept];
    std::size_t count = 0;
    std::size_t next = 0;
  };
  /// Parts of similar size: within a factor of two.
  sizes& of(std::size_t length);

  const double factor_;
  const duration soonest_;
  const double extra_;
  std::mutex mutex_;
  std::unique_ptr<sizes> by_size_[64];
  double allowed_ = 0;
};

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// When a part that is slow to come is asked for a second time.
struct hedge_options {
  double factor = 3;                       ///< times the 95th percentile of recent parts of its size; at least 1
  duration least = duration(100'000'000);  ///< ... and not before this
  double extra = 0.05;                     ///< second requests per request, at most
};

/// A store whose slow parts are requested a second time; the first answer counts, the other request is dropped.
///
/// A part is slow that takes `factor` times as long as 95 of 100 recent parts of its size. The second request goes over
/// another connection, since the first one keeps its own. Both hold a slab: memory exceeds the bound of `fetch` by the
/// parts that are requested twice at a time. A part fails when both requests have. See hedged().
template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_hedged_storage final : public forwarding_storage {
 public:
  basic_hedged_storage(std::shared_ptr<const storage> inner, const hedge_options& options)
      : forwarding_storage(std::move(inner)), times_(options.factor, options.least, options.extra) {}

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    return read_hedged(false, std::move(object), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return read_hedged(true, std::move(object), std::move(etag), 0, length, std::move(slabs));
  }

 private:
  struct answer;
  task<part> read_hedged(bool small, shard object, std::string etag, std::uint64_t offset, std::size_t length,
                         slab_pool slabs) const;
  static task<void> ask(task<part> reading, answer& to);

  mutable detail::part_times times_;
};
using hedged_storage = basic_hedged_storage<>;

#if defined(MILLRACE_SEPARATE_COMPILATION)
extern template class basic_hedged_storage<>;
#endif

namespace detail {

MILLRACE_COROUTINE std::shared_ptr<const storage> hedged_storage_of(std::shared_ptr<const storage> inner,
                                                                    const hedge_options& options);

}  // namespace detail

/// A store whose slow parts are asked for a second time: `fetch(hedged(s3))`. `store` is a storage or an argument of
/// as_storage(). configuration_error for a factor below 1, and a share of extra requests that is not from 0 to 1.
template <class Store>
std::shared_ptr<const storage> hedged(const Store& store, const hedge_options& options = {}) {
  return detail::hedged_storage_of(detail::storage_of(store), options);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/hedged_storage.ipp>
#endif
