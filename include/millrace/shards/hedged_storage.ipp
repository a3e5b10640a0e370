// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/runtime_counts.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/sync/any_of.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::optional<duration> part_times::patience(std::size_t length) {
  std::lock_guard lock(mutex_);
  allowed_ = std::min(allowed_ + extra_, most_allowed);
  const sizes& s = of(length);
  if (s.count < least) return std::nullopt;
  return std::max(nanoseconds(static_cast<double>(s.percentile_95().count()) * factor_), soonest_);
}

MILLRACE_INLINE bool part_times::take() {
  std::lock_guard lock(mutex_);
  if (allowed_ < 1) return false;
  allowed_ -= 1;
  return true;
}

MILLRACE_INLINE void part_times::came(std::size_t length, duration took) {
  std::lock_guard lock(mutex_);
  sizes& s = of(length);
  s.times[s.next++ % kept] = took;
  if (s.count < kept) ++s.count;
}

MILLRACE_INLINE duration part_times::sizes::percentile_95() const noexcept {
  const std::size_t from_top = count - count * 95 / 100;
  duration longest[kept - kept * 95 / 100] = {};  // the longest first
  for (std::size_t i = 0; i < count; ++i) {
    duration d = times[i];
    for (std::size_t k = 0; k < from_top; ++k) {
      if (d > longest[k]) std::swap(d, longest[k]);
    }
  }
  return longest[from_top - 1];
}

MILLRACE_INLINE part_times::sizes& part_times::of(std::size_t length) {
  std::size_t doublings = 0;
  while (length > 1) {
    length >>= 1;
    ++doublings;
  }
  if (by_size_[doublings] == nullptr) by_size_[doublings] = std::make_unique<sizes>();
  return *by_size_[doublings];
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

template <class Unused>
struct basic_hedged_storage<Unused>::answer {
  std::optional<part> came;
  std::exception_ptr failure;
};

template <class Unused>
task<storage::part> basic_hedged_storage<Unused>::read_hedged(bool small, shard object, std::string etag,
                                                              std::uint64_t offset, std::size_t length,
                                                              slab_pool slabs) const {
  const coroutine_context here = co_await this_context();
  const time_point begun = here.get_executor().now();
  answer first;
  answer second;
  task<void> asking = ask(detail::read_or_small(*this->inner(), small, object, etag, offset, length, slabs), first);
  // void, by a name that hangs on the class's parameter: for any other, what any_of() makes is emitted wherever this
  // header is included.
  using nothing = std::conditional_t<std::is_void_v<Unused>, void, Unused>;
  spawned<nothing> asked(here, std::move(asking));
  const std::optional<duration> patience = times_.patience(length);
  if (patience) co_await any_of(asked.ended(), sleep_for(*patience));
  if (patience && !asked.done() && times_.take()) {
    if (detail::runtime_counts* const counts = here.runtime().counts()) counts->hedges.add();
    asking = ask(detail::read_or_small(*this->inner(), small, std::move(object), std::move(etag), offset, length,
                                       slabs),
                 second);
    spawned<nothing> again(here, std::move(asking));
    co_await any_of(asked.ended(), again.ended());
    if (!first.came && !second.came) co_await all_of(asked.ended(), again.ended());
  } else {
    co_await asked.ended();
  }
  if (!first.came && !second.came) std::rethrow_exception(first.failure);
  times_.came(length, here.get_executor().now() - begun);
  co_return first.came ? std::move(*first.came) : std::move(*second.came);
}

template <class Unused>
task<void> basic_hedged_storage<Unused>::ask(task<part> reading, answer& to) {
  try {
    to.came.emplace(co_await std::move(reading));
  } catch (...) {
    to.failure = std::current_exception();
  }
}

#if defined(MILLRACE_SEPARATE_COMPILATION)
template class basic_hedged_storage<>;
#endif

MILLRACE_COROUTINE_BODY std::shared_ptr<const storage> detail::hedged_storage_of(std::shared_ptr<const storage> inner,
                                                                                 const hedge_options& options) {
  if (!(options.factor >= 1) || !(options.extra >= 0 && options.extra <= 1)) {
    throw configuration_error("hedged() needs a factor of 1 or more and a share of extra requests from 0 to 1");
  }
  return std::make_shared<const hedged_storage>(std::move(inner), options);
}

}  // namespace millrace
