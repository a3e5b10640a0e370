// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/runtime_counts.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/shards/detail/hedged_reader.hpp>
#include <millrace/sync/event.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE part_times::part_times(double extra) : extra_(extra) {
  if (!(extra >= 0 && extra <= 1)) {
    throw configuration_error("requests for late parts are a share of all, from 0 to 1 (retry_options::hedges)");
  }
}

MILLRACE_INLINE duration part_times::patience(std::size_t length) {
  const std::lock_guard lock(mutex_);
  for (const times* t = &of(length); t != std::end(by_size_); ++t) {  // longer ones take no less
    if (t->count >= least) return std::max(nanoseconds(t->late * t->usual), soonest);
  }
  return duration(0);
}

MILLRACE_INLINE bool part_times::take(std::size_t waited) {
  const std::lock_guard lock(mutex_);
  const double owed = refused_ ? 0 : std::min(static_cast<double>(waited), saved + 1) - 1;
  if (allowed_ < 1 - owed) return false;
  allowed_ -= 1;
  return true;
}

MILLRACE_INLINE void part_times::came(std::size_t length, duration took, duration held) {
  const std::lock_guard lock(mutex_);
  if (held.count() > 0) {  // its time says nothing of others
    allowed_ = std::min(allowed_, 0.0);
    refused_ = true;
    return;
  }
  allowed_ = std::min(allowed_ + extra_, saved);
  refused_ = refused_ && allowed_ < 1;
  times& t = of(length);
  const auto ns = static_cast<double>(took.count());
  ++t.count;
  if (t.count == 1) t.usual = ns;
  const double step = std::max(0.02, 1 / static_cast<double>(t.count));
  t.usual *= ns < t.usual ? 1 / (1 + step) : 1 + step;
  t.late = std::max(2.0, t.late * (ns > t.late * t.usual ? 1.1 : 1 - 0.1 * extra_ / 2));
}

/// The requests for one part, and what has come of them.
class hedged_reader::race final : private timer_node {
 public:
  explicit race(executor& ex) noexcept : executor_(ex) {}
  race(const race&) = delete;
  race& operator=(const race&) = delete;
  ~race() override { executor_.remove_timer(*this); }

  bool over() const noexcept { return has_come || under_way == 0; }
  void look_after(duration d) noexcept { executor_.add_timer(*this, added(executor_.now(), d)); }
  /// One request. `waited`: so long after the first one.
  MILLRACE_COROUTINE static task<void> run(race& self, task<storage::part> asking, duration waited);

  bool has_come = false;
  storage::part came;
  std::exception_ptr failure;  // the first one
  std::size_t under_way = 0;
  notifier changed;

 private:
  void fire() noexcept override { changed.notify(); }

  executor& executor_;
};

MILLRACE_COROUTINE_BODY task<void> hedged_reader::race::run(race& self, task<storage::part> asking, duration waited) {
  try {
    storage::part p = co_await std::move(asking);
    if (p.first_byte.count() > 0) p.first_byte += waited;
    if (!std::exchange(self.has_come, true)) self.came = std::move(p);
  } catch (...) {
    if (self.failure == nullptr) self.failure = std::current_exception();  // thrown if no other request brings the part
  }
  --self.under_way;
  self.changed.notify();
}

MILLRACE_COROUTINE_BODY task<storage::part> hedged_reader::read_hedged(bool small, shard object, std::string etag,
                                                                       std::uint64_t offset, std::size_t length,
                                                                       slab_pool slabs) const {
  if (times_.off()) {
    task<storage::part> asking = ask(small, std::move(object), std::move(etag), offset, length, std::move(slabs));
    storage::part p = co_await std::move(asking);
    co_return std::move(p);
  }
  const coroutine_context here = co_await this_context();
  executor& ex = here.get_executor();
  const time_point begun = ex.now();
  race r(ex);
  spawned<void> requests[3];  // destroyed first: they report to the race
  std::size_t n = 0;
  do {
    const duration since = ex.now() - begun;
    const duration patience = times_.patience(length);
    const auto waited = static_cast<std::size_t>(patience.count() > 0 ? since / patience : 0);
    if (n == 0 || (waited >= n && n < std::size(requests) && times_.take(waited))) {
      if (runtime_counts* const counts = n == 0 ? nullptr : here.runtime().counts()) counts->hedges.add();
      task<storage::part> asking = ask(small, object, etag, offset, length, slabs);
      ++r.under_way;
      requests[n++] = spawned<void>(here, race::run(r, std::move(asking), since));
    }
    if (n < std::size(requests)) {
      // A part that hangs is looked at ever more rarely.
      r.look_after(std::max(patience.count() > 0 ? patience - since % patience : part_times::unknown, since / 4));
    }
    co_await r.changed.wait();
  } while (!r.over());
  if (!r.has_come) std::rethrow_exception(r.failure);
  times_.came(length, ex.now() - begun, r.came.held);
  co_return std::move(r.came);
}

}  // namespace millrace::detail
