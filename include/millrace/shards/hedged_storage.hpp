// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/shards/detail/part_times.hpp>
#include <millrace/shards/detail/storage_of.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/sync/any_of.hpp>

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
template <class Unused = void>
class basic_hedged_storage final : public storage {
 public:
  basic_hedged_storage(std::shared_ptr<const storage> inner, const hedge_options& options)
      : inner_(std::move(inner)), times_(options.factor, options.least, options.extra) {}

  bool serves(std::string_view url) const noexcept override { return inner_->serves(url); }
  bool may_be_sequential() const noexcept override { return inner_->may_be_sequential(); }
  task<std::unique_ptr<object_check>> check(shard object, std::string etag) const override {
    return inner_->check(std::move(object), std::move(etag));
  }

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    executor& ex = co_await this_executor();
    stage_record* const stage = co_await this_stage();
    const time_point begun = ex.now();
    answer first;
    answer second;
    task<void> asking = ask(inner_->read(object, etag, offset, length, slabs), first);
    // void, by a name that hangs on the class's parameter: for any other, what any_of() makes is emitted wherever this
    // header is included.
    using nothing = std::conditional_t<std::is_void_v<Unused>, void, Unused>;
    spawned<nothing> asked(ex, std::move(asking), stage);
    const std::optional<duration> patience = times_.patience(length);
    if (patience) co_await any_of(asked.ended(), sleep_for(*patience));
    if (patience && !asked.done() && times_.take()) {
      asking = ask(inner_->read(std::move(object), std::move(etag), offset, length, slabs), second);
      spawned<nothing> again(ex, std::move(asking), stage);
      co_await any_of(asked.ended(), again.ended());
      if (!first.came && !second.came) co_await all_of(asked.ended(), again.ended());
    } else {
      co_await asked.ended();
    }
    if (!first.came && !second.came) std::rethrow_exception(first.failure);
    times_.came(length, ex.now() - begun);
    co_return first.came ? std::move(*first.came) : std::move(*second.came);
  }

 private:
  struct answer {
    std::optional<part> came;
    std::exception_ptr failure;
  };
  static task<void> ask(task<part> reading, answer& to) {
    try {
      to.came.emplace(co_await std::move(reading));
    } catch (...) {
      to.failure = std::current_exception();
    }
  }

  const std::shared_ptr<const storage> inner_;
  mutable detail::part_times times_;
};
using hedged_storage = basic_hedged_storage<>;

/// A store whose slow parts are asked for a second time: `fetch(hedged(s3))`. `store` is a storage or what as_storage()
/// takes.
template <class Store>
std::shared_ptr<const storage> hedged(const Store& store, const hedge_options& options = {}) {
  if (!(options.factor >= 1) || !(options.extra >= 0 && options.extra <= 1)) {
    throw configuration_error("hedged() needs a factor of 1 or more and a share of extra requests from 0 to 1");
  }
  return std::make_shared<const hedged_storage>(detail::storage_of(store), options);
}

}  // namespace millrace
