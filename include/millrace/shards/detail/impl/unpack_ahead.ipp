// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/runtime_parts.hpp>
#include <millrace/flow/run_budget.hpp>
#include <millrace/shards/detail/unpack_ahead.hpp>
#include <millrace/tar/detail/libarchive.hpp>

namespace millrace::detail {

MILLRACE_INLINE unpack_ahead::unpack_ahead(async_generator<chunk>& source, executor& ex, stage_record* stage,
                                           format_of_head look, std::size_t head_bytes,
                                           const tar::archive_options& limits, const unpack_place& place)
    : source_(source),
      ex_(ex),
      stage_(stage),
      look_(look),
      head_bytes_(head_bytes),
      limits_(limits),
      pool_(place.pool),
      slabs_(ex.runtime() == nullptr ? slab_pool(MiB) : ex.runtime()->slabs(MiB)),
      most_bytes_(place.bytes),
      bound_stated_(place.bytes != 0),
      most_workers_(place.objects) {
  if (pool_) return;
  if (ex.runtime() != nullptr) {
    cpu_pool& pool = ex.runtime()->pool();
    pool_ = cpu_pool::share(pool);
    if (most_workers_ == 0) most_workers_ = pool.threads();
  } else {
    // On the loop's thread nothing is gained by working ahead.
    most_bytes_ = 0;
    most_workers_ = 1;
  }
}

MILLRACE_INLINE unpack_ahead::~unpack_ahead() {
  if (run_budget* const budget = run_budget::of(stage_)) budget->give_back(granted_);
}

MILLRACE_COROUTINE_BODY void unpack_ahead::take(chunk&& c) {
  if (objects_.empty() || objects_.back()->whole) {
    objects_.push_back(std::make_unique<object>());
    objects_.back()->from = c.from;
  }
  object& o = *objects_.back();
  o.whole = c.last;
  if (o.finished) return;  // it has failed
  held_ += c.data.size();
  if (o.known && !o.packed) {
    o.finished = c.last;
    o.out.emplace_back(std::move(c));
  } else {
    if (!o.known) o.head.append(c.data.view().substr(0, head_bytes_ - o.head.size()));
    input_ += c.data.size();
    o.waiting.push_back(std::move(c));
    if (!o.known && (o.head.size() == head_bytes_ || o.whole)) decide(o);
  }
  changed_.notify();
}

MILLRACE_COROUTINE_BODY void unpack_ahead::decide(object& o) {
  o.known = true;
  tar::format kind = tar::format::unknown;
  try {
    kind = look_(o.head, *o.from);
  } catch (...) {
    o.error = std::current_exception();
    o.finished = true;
    return;
  }
  o.packed = tar::detail::is_compression(kind);
  if (!o.packed) {
    for (chunk& c : o.waiting) {
      input_ -= c.data.size();
      o.out.emplace_back(std::move(c));
    }
    o.waiting.clear();
    o.finished = o.whole;
    return;
  }
  met_packed_ = true;
  o.unpacker = std::make_shared<tar::detail::unpacker>(kind, limits_, slabs_);
  // Whoever reads on learns of the object before it learns of an error in it.
  o.out.emplace_back(chunk(o.from, 0, bytes(), false), true);
  to_start_.push_back(&o);
  if (reads_ahead_) start_workers();
}

MILLRACE_COROUTINE_BODY void unpack_ahead::start() {
  reads_ahead_ = true;
  if (!bound_stated_ && pool_) {
    run_budget* const budget = run_budget::of(stage_);
    most_bytes_ = budget == nullptr ? most_unstated : granted_ = budget->take_half(most_unstated);
  }
  start_workers();
  pump_ = spawned<void>(ex_, pump(*this), stage_);
}

MILLRACE_COROUTINE_BODY void unpack_ahead::start_workers() {
  while (workers_ < most_workers_ && !to_start_.empty()) {
    object& o = *to_start_.front();
    to_start_.pop_front();
    o.worker = spawned<void>(ex_, work(*this, o), stage_);
    ++workers_;
  }
}

MILLRACE_INLINE bool unpack_ahead::has_output() {
  advance();
  return !objects_.empty() && !objects_.front()->out.empty();
}

MILLRACE_INLINE bool unpack_ahead::ended() {
  advance();
  return objects_.empty() ? source_ended_ : objects_.front()->out.empty() && objects_.front()->error != nullptr;
}

MILLRACE_INLINE void unpack_ahead::rethrow() {
  std::exception_ptr& error = objects_.empty() ? error_ : objects_.front()->error;
  if (error) std::rethrow_exception(std::exchange(error, nullptr));
}

MILLRACE_INLINE unpacked_chunk unpack_ahead::pop() {
  object& o = *objects_.front();
  unpacked_chunk c = std::move(o.out.front());
  o.out.pop_front();
  held_ -= c.data.size();
  changed_.notify();
  return c;
}

MILLRACE_INLINE void unpack_ahead::advance() {
  while (!objects_.empty() && objects_.front()->finished && objects_.front()->out.empty() &&
         objects_.front()->error == nullptr && (!objects_.front()->worker || objects_.front()->worker.done())) {
    objects_.pop_front();
    changed_.notify();
  }
}

MILLRACE_INLINE bool unpack_ahead::wants_input() const noexcept {
  // Input alone must not fill the room: then only the first object would be unpacked.
  if ((held_ < most_bytes_ && input_ < most_bytes_ / 2) || objects_.empty()) return true;
  const object& o = *objects_.back();
  return objects_.size() == 1 && o.out.empty() && (o.waiting.empty() || !o.known) && o.hungry;
}

MILLRACE_INLINE bool unpack_ahead::may_work(const object& o) const noexcept {
  if (o.waiting.empty() && o.hungry && !(o.whole && !o.told_end) && !o.cut) return false;
  return held_ < most_bytes_ || (&o == objects_.front().get() && o.out.empty());
}

MILLRACE_COROUTINE_BODY task<void> unpack_ahead::pump(unpack_ahead& self) {
  try {
    for (;;) {
      while (!self.wants_input()) co_await self.changed_.wait();
      std::optional<chunk> c = co_await self.source_.next();
      if (!c) break;
      self.take(std::move(*c));
    }
  } catch (...) {
    self.error_ = std::current_exception();
  }
  self.end_source();
}

MILLRACE_INLINE void unpack_ahead::end_source() noexcept {
  source_ = async_generator<chunk>();
  source_ended_ = true;
  if (!objects_.empty() && !objects_.back()->whole) {
    object& o = *objects_.back();
    o.cut = true;
    if (!o.packed) o.finished = true;
  }
  changed_.notify();
}

MILLRACE_COROUTINE_BODY task<void> unpack_ahead::work(unpack_ahead& self, object& o) {
  while (!o.finished) {
    while (!self.may_work(o)) co_await self.changed_.wait();
    if (o.cut && o.hungry && o.waiting.empty()) break;
    bytes piece;
    if (o.hungry && !o.waiting.empty()) {
      piece = std::move(o.waiting.front().data);
      o.waiting.pop_front();
      self.held_ -= piece.size();
      self.input_ -= piece.size();
    }
    o.told_end = o.told_end || (o.whole && o.waiting.empty());
    unpack_job job(o.unpacker, std::move(piece), o.told_end);
    o.hungry = false;
    try {
      unpack_step made;
      if (self.pool_) {
        made = co_await self.pool_.run(std::move(job));
      } else {
        made = job();
      }
      self.put(o, std::move(made));
    } catch (...) {
      o.error = std::current_exception();
      o.finished = true;
    }
    self.changed_.notify();
  }
  o.finished = true;
  o.unpacker.reset();
  for (const chunk& c : o.waiting) {
    self.held_ -= c.data.size();
    self.input_ -= c.data.size();
  }
  o.waiting.clear();
  --self.workers_;
  self.start_workers();
  self.changed_.notify();
}

MILLRACE_INLINE void unpack_ahead::put(object& o, unpack_step&& made) {
  for (bytes& data : made.out) {
    const std::size_t size = data.size();
    o.out.emplace_back(chunk(o.from, o.unpacked, std::move(data), false), true);
    o.unpacked += size;
    held_ += size;
  }
  o.hungry = made.hungry;
  if (made.done) o.out.emplace_back(chunk(o.from, o.unpacked, bytes(), true), true);
  if (made.failed) {
    o.error = std::make_exception_ptr(
        archive_error(std::move(made.reason), where{o.from->shown(), made.offset, std::string()}));
  }
  o.finished = made.done || made.failed;
}

}  // namespace millrace::detail
