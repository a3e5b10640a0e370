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
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/shards/detail/unpack_ahead.hpp>
#include <millrace/tar/detail/unpacker.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE unpack_step unpack_job::operator()() {
  using event = tar::detail::unpacker::event;
  constexpr std::size_t enough = 4 * MiB;
  if (!piece_.empty()) unpacker_->feed(std::move(piece_));
  if (last_) unpacker_->end_input();
  unpack_step made;
  for (std::size_t total = 0; total < enough;) {
    const event what = unpacker_->run();
    bytes data = unpacker_->take_data();
    if (!data.empty()) {
      total += data.size();
      made.out.push_back(std::move(data));
    }
    if (what == event::data) continue;
    made.hungry = what == event::hungry;
    made.done = what == event::done;
    made.failed = what == event::failed;
    if (made.failed) {
      made.reason = unpacker_->reason();
      made.offset = unpacker_->offset();
    }
    break;
  }
  return made;
}

MILLRACE_INLINE unpack_ahead::unpack_ahead(async_generator<chunk>& source, const coroutine_context& here,
                                           format_of_head look, std::size_t head_bytes,
                                           const tar::archive_options& limits, const unpack_place& place)
    : source_(source),
      here_(here),
      look_(look),
      head_bytes_(head_bytes),
      limits_(limits),
      pool_(place.pool),
      slabs_(here.runtime().slabs(MiB)),
      most_bytes_(place.bytes),
      bound_stated_(place.bytes != 0),
      most_workers_(place.objects) {
  const std::size_t largest = here.run().budget().largest_item();
  limits_.members.budget_bytes = largest == run_budget::unlimited ? 0 : largest;
  windows_.reset(new tar::detail::window_budget(limits_.members.budget_bytes));
  constexpr const char* more = "more objects open before it, or a larger .objects or .bytes of its unpack_options";
  if (pool_) {
    tell_pool(here, pool_, true, most_workers_, more);
    return;
  }
  pool_ = cpu_pool::share::of(here.runtime());
  if (pool_) {
    if (most_workers_ == 0) most_workers_ = pool_.threads();
    tell_pool(here, pool_, false, most_workers_, more);
  } else {
    // Working ahead on the loop's thread would gain nothing.
    most_bytes_ = 0;
    most_workers_ = 1;
  }
}

MILLRACE_INLINE unpack_ahead::~unpack_ahead() {
  here_.run().budget().give_back(granted_);
}

MILLRACE_COROUTINE_BODY void unpack_ahead::take(chunk&& c) {
  if (objects_.empty() || objects_.back().whole) {
    objects_.emplace_back();
    objects_.back().from = c.from;
  }
  object& o = objects_.back();
  o.whole = c.last;
  if (o.finished) return;  // it has failed
  try {
    keep(o, std::move(c));
  } catch (...) {
    fail(o);
  }
  changed_.notify();
}

MILLRACE_COROUTINE_BODY void unpack_ahead::keep(object& o, chunk&& c) {
  const std::size_t size = c.data.size();
  if (o.known && !o.packed) {
    o.out.emplace_back(std::move(c));
    o.finished = o.whole;
    held_ += size;
    return;
  }
  if (!o.known) o.head.append(c.data.view().substr(0, head_bytes_ - o.head.size()));
  o.waiting.push_back(std::move(c));
  held_ += size;
  input_ += size;
  if (!o.known && (o.head.size() == head_bytes_ || o.whole)) decide(o);
}

MILLRACE_COROUTINE_BODY void unpack_ahead::decide(object& o) {
  o.known = true;
  const tar::format kind = look_(o.head, *o.from);
  o.packed = tar::detail::is_compression(kind);
  if (!o.packed) {
    for (; !o.waiting.empty(); o.waiting.pop_front()) {
      const std::size_t size = o.waiting.front().data.size();
      o.out.emplace_back(std::move(o.waiting.front()));
      input_ -= size;
    }
    o.finished = o.whole;
    return;
  }
  met_packed_ = true;
  o.unpacker = std::make_shared<tar::detail::unpacker>(kind, limits_, slabs_, o.head, windows_);
  // The consumer learns of the object before it gets an error in it.
  o.out.emplace_back(chunk(o.from, 0, bytes(), false), true);
  to_start_.push_back(&o);
  if (reads_ahead_) start_workers();
}

MILLRACE_COROUTINE_BODY void unpack_ahead::start() {
  reads_ahead_ = true;
  if (!bound_stated_ && pool_) most_bytes_ = granted_ = here_.run().budget().take_half(most_unstated);
  start_workers();
  pump_.start(here_, *this, source_);
}

MILLRACE_COROUTINE_BODY void unpack_ahead::start_workers() noexcept {
  while (workers_ < most_workers_ && !to_start_.empty()) {
    object& o = *to_start_.front();
    try {
      if (!o.finished && !o.unpacker->take_window()) break;  // when an object before it has ended
      if (!o.finished) {  // else it has failed
        o.worker = spawned<void>(here_, work(*this, o));
        ++workers_;
      }
    } catch (...) {
      fail(o);
    }
    to_start_.pop_front();
  }
}

MILLRACE_INLINE void unpack_ahead::fail(object& o) noexcept {
  o.error = std::current_exception();
  end(o);
}

MILLRACE_INLINE void unpack_ahead::end(object& o) noexcept {
  o.finished = true;
  o.unpacker.reset();
  for (const chunk& c : o.waiting) {
    held_ -= c.data.size();
    input_ -= c.data.size();
  }
  o.waiting.clear();
}

MILLRACE_INLINE bool unpack_ahead::has_output() {
  advance();
  return !objects_.empty() && !objects_.front().out.empty();
}

MILLRACE_INLINE bool unpack_ahead::ended() {
  advance();
  return objects_.empty() ? pump_.ended() : objects_.front().out.empty() && objects_.front().error != nullptr;
}

MILLRACE_INLINE void unpack_ahead::rethrow() {
  if (objects_.empty()) return pump_.rethrow();
  if (std::exception_ptr& error = objects_.front().error) std::rethrow_exception(std::exchange(error, nullptr));
}

MILLRACE_INLINE unpacked_chunk unpack_ahead::pop() {
  object& o = objects_.front();
  unpacked_chunk c = std::move(o.out.front());
  o.out.pop_front();
  held_ -= c.data.size();
  changed_.notify();
  return c;
}

MILLRACE_INLINE void unpack_ahead::advance() {
  while (!objects_.empty() && objects_.front().finished && objects_.front().out.empty() &&
         objects_.front().error == nullptr && (!objects_.front().worker || objects_.front().worker.done())) {
    objects_.pop_front();
    changed_.notify();
  }
}

MILLRACE_INLINE bool unpack_ahead::has_room() const noexcept {
  // Input alone must not fill the room: then only the first object would be unpacked.
  if ((held_ < most_bytes_ && input_ < most_bytes_ / 2) || objects_.empty()) return true;
  const object& o = objects_.back();
  return objects_.size() == 1 && o.out.empty() && (o.waiting.empty() || !o.known) && o.hungry;
}

MILLRACE_INLINE bool unpack_ahead::may_work(const object& o) const noexcept {
  if (o.waiting.empty() && o.hungry && !(o.whole && !o.input_ended) && !o.cut) return false;
  return held_ < most_bytes_ || (&o == &objects_.front() && o.out.empty());
}

MILLRACE_INLINE void unpack_ahead::source_ended() noexcept {
  if (!objects_.empty() && !objects_.back().whole) {
    object& o = objects_.back();
    o.cut = true;
    if (!o.packed) o.finished = true;
  }
  changed_.notify();
}

MILLRACE_COROUTINE_BODY task<void> unpack_ahead::work(unpack_ahead& self, object& o) {
  while (!o.finished) {
    while (!o.finished && !self.may_work(o)) co_await self.changed_.wait();
    if (o.finished || (o.cut && o.hungry && o.waiting.empty())) break;
    bytes piece;
    if (o.hungry && !o.waiting.empty()) {
      piece = std::move(o.waiting.front().data);
      o.waiting.pop_front();
      self.held_ -= piece.size();
      self.input_ -= piece.size();
    }
    o.input_ended = o.input_ended || (o.whole && o.waiting.empty());
    unpack_job job(o.unpacker, std::move(piece), o.input_ended);
    o.hungry = false;
    try {
      unpack_step made = co_await self.pool_.run(std::move(job));
      self.put(o, std::move(made));
    } catch (...) {
      self.fail(o);
    }
    self.changed_.notify();
  }
  self.end(o);
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
  if (made.failed && o.error == nullptr) {
    o.error = std::make_exception_ptr(
        archive_error(std::move(made.reason), where{o.from->shown(), made.offset, std::string()}));
  }
  o.finished = o.finished || made.done || made.failed;
}

MILLRACE_COROUTINE_BODY async_generator<unpacked_chunk> unpack_objects(async_generator<chunk> in, format_of_head look,
                                                                       std::size_t head_bytes,
                                                                       tar::archive_options limits,
                                                                       unpack_place place) {
  const coroutine_context here = co_await this_context();
  unpack_ahead ahead(in, here, look, head_bytes, limits, place);
  while (!ahead.met_packed()) {
    std::optional<chunk> c = co_await in.next();
    if (!c) co_return;
    ahead.take(std::move(*c));
    c.reset();
    while (ahead.has_output() && !ahead.met_packed()) {
      unpacked_chunk piece = ahead.pop();
      co_yield give(piece);
    }
    if (ahead.ended()) ahead.rethrow();
  }
  ahead.start();
  for (;;) {
    while (!ahead.has_output() && !ahead.ended()) co_await ahead.wait();
    if (!ahead.has_output()) {
      ahead.rethrow();
      co_return;
    }
    unpacked_chunk piece = ahead.pop();
    co_yield give(piece);
  }
}

}  // namespace millrace::detail
