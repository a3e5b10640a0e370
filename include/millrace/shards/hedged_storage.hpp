// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/shards/detail/part_times.hpp>
#include <millrace/shards/detail/storage_of.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace {

/// When a part that is slow to come is asked for a second time.
struct hedge_options {
  double factor = 3;                       ///< times the 95th percentile of recent parts of its size; at least 1
  duration least = duration(100'000'000);  ///< ... and not before this
  double extra = 0.05;                     ///< second requests per request, at most
};

/// A store whose slow parts are asked for a second time; what comes first counts, the other request is dropped.
///
/// A part is slow that takes `factor` times as long as 95 of 100 recent parts of its size. The second request goes over
/// another connection, since the first one keeps its own. Both hold a slab: for as many parts as are asked for twice at
/// a time, memory goes beyond the bound of `fetch`. A part fails when both requests have. See hedged().
template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_hedged_storage final : public storage {
 public:
  basic_hedged_storage(std::shared_ptr<const storage> inner, const hedge_options& options)
      : inner_(std::move(inner)), times_(options.factor, options.least, options.extra) {}

  bool serves(std::string_view url) const noexcept override { return inner_->serves(url); }
  bool may_be_sequential() const noexcept override { return inner_->may_be_sequential(); }
  std::size_t keeps() const noexcept override { return inner_->keeps(); }
  task<std::unique_ptr<object_check>> check(shard object, std::string etag) const override {
    return inner_->check(std::move(object), std::move(etag));
  }
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override;

 private:
  struct answer;
  static task<void> ask(task<part> reading, answer& to);

  const std::shared_ptr<const storage> inner_;
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

/// A store whose slow parts are asked for a second time: `fetch(hedged(s3))`. `store` is a storage or what as_storage()
/// takes. configuration_error for a factor below 1, and a share of extra requests that is not from 0 to 1.
template <class Store>
std::shared_ptr<const storage> hedged(const Store& store, const hedge_options& options = {}) {
  return detail::hedged_storage_of(detail::storage_of(store), options);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/hedged_storage.ipp>
#endif
