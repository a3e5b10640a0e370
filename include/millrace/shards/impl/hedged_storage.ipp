// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/sync/any_of.hpp>

namespace millrace {

template <class Unused>
struct basic_hedged_storage<Unused>::answer {
  std::optional<part> came;
  std::exception_ptr failure;
};

template <class Unused>
task<storage::part> basic_hedged_storage<Unused>::read(shard object, std::string etag, std::uint64_t offset,
                                                       std::size_t length, slab_pool slabs) const {
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
