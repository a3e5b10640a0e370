// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/runtime_parts.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/io/run_on.hpp>
#include <millrace/shards/detail/read_window.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/sync/notifier.hpp>

namespace millrace::detail {

/// The part scheduler behind `fetch`. Parts are asked for in the order in which they will be delivered, as far as sizes
/// are known, until the window is full: one large object gets as many connections as many small ones. The window covers
/// what is in flight and what has arrived and is not yet taken; it grows towards the bound as read_window says. One
/// part of it is always left to the object that is delivered next, so that later objects cannot hold all of it while
/// the consumer waits for an earlier one.
///
/// The first object begins with small parts, so that its first bytes need not wait for those behind them: a part is as
/// long as all before it and 256 KiB, at most options.part. How an object is cut depends on nothing else.
class part_scheduler {
 public:
  MILLRACE_COROUTINE part_scheduler(async_generator<shard> in, std::shared_ptr<const storage> store,
                                    fetch_options options, std::uint64_t start, executor& ex, stage_record* stage);

  /// The next piece in order; nullopt at the end. Its share of the bound is freed by the following call.
  MILLRACE_COROUTINE task<std::optional<chunk>> next();

 private:
  struct piece {
    piece(bytes content, const running_crc& sum) noexcept : data(std::move(content)), crc(sum) {}
    bytes data;
    running_crc crc;
  };
  struct job {
    job(std::uint64_t at, std::size_t bytes) noexcept : offset(at), reserved(bytes) {}
    std::uint64_t offset;
    std::size_t reserved;
    spawned<piece> reading;
  };
  struct open_object {
    open_object(shard s, std::uint64_t start, bool is_first)
        : info(std::make_shared<shard>(std::move(s))), etag(info->etag), first(is_first), next_offset(start) {}
    /// Whether every part has been asked for.
    bool complete() const noexcept { return rest ? rest_ended : info->size && next_offset >= *info->size; }

    /// Takes the store's answer to ask_check().
    void judge(std::unique_ptr<object_check> answer);

    const std::shared_ptr<shard> info;  // size and ETag are filled in by the first answer, before a chunk shows it
    std::string etag;          // of the version that is read; empty: not known yet
    const bool first;          // of all that have bytes
    std::uint64_t next_offset;
    bool learning = false;  // the first part of an object of unknown size is under way
    std::unique_ptr<sequential_rest> rest;
    bool rest_ended = false;
    bool reading_rest = false;
    std::unique_ptr<object_check> check;
    spawned<std::unique_ptr<object_check>> asking;  // for the check; empty once it is there
    std::deque<job> jobs;                 // declared last: jobs refer to the object
  };

  chunk end_of_front(std::uint64_t offset, bytes data);

  /// How long the next part of an object is, if the object goes on for that long.
  std::size_t next_part(const open_object& o) const noexcept;

  /// Asks the store for whatever the window allows, in the order of delivery.
  MILLRACE_COROUTINE void issue();

  /// An object of one part is compared by its read().
  void ask_check(open_object& o, std::size_t first_part);

  MILLRACE_COROUTINE task<piece> read_part(open_object& o, std::uint64_t offset, std::size_t length);

  MILLRACE_COROUTINE task<piece> read_rest(open_object& o, job& j);

  void count(std::size_t read) noexcept {
    if (stage_ != nullptr) stage_record::add(stage_->read, static_cast<std::int64_t>(read));
  }

  /// The loop of the runtime whose turn it is, null for this one. A sequential rest would live on the loop that began
  /// it.
  executor* elsewhere() noexcept;

  /// All parts must be of one version of the object, whole, and of one size.
  void check(open_object& o, const storage::part& p, std::uint64_t offset, std::size_t length);

  MILLRACE_COROUTINE task<void> pull();

  async_generator<shard> in_;
  const std::shared_ptr<const storage> store_;
  const fetch_options options_;
  const std::uint64_t start_;  // of what is read of each object
  executor& executor_;
  stage_record* const stage_;
  runtime_parts* const runtime_;
  const slab_pool slabs_;
  read_window window_;
  std::size_t used_ = 0;   // bytes of the window
  std::size_t taken_ = 0;  // of those, with the consumer
  bool begun_ = false;     // an object that has bytes has been opened
  bool upstream_ended_ = false;
  std::exception_ptr error_;
  notifier changed_;
  std::deque<open_object> open_;  // in the order of delivery; coroutines refer to them
  spawned<void> puller_;          // declared last: it refers to all of the above
};

MILLRACE_COROUTINE_BODY part_scheduler::part_scheduler(async_generator<shard> in,
                                                       std::shared_ptr<const storage> store, fetch_options options,
                                                       std::uint64_t start, executor& ex, stage_record* stage)
    : in_(std::move(in)),
      store_(std::move(store)),
      options_(options),
      start_(start),
      executor_(ex),
      stage_(stage),
      runtime_(ex.runtime()),
      slabs_(runtime_ != nullptr ? runtime_->slabs(options.part) : slab_pool(options.part)),
      window_(2 * options.part, options.bytes()) {
  puller_ = spawned<void>(ex, pull(), stage);
}

MILLRACE_COROUTINE_BODY task<std::optional<chunk>> part_scheduler::next() {
  used_ -= std::exchange(taken_, 0);
  for (;;) {
    while (open_.empty()) {
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      if (upstream_ended_) co_return std::nullopt;
      co_await changed_.wait();
    }
    issue();
    open_object& o = open_.front();
    if (o.jobs.empty()) {
      if (o.complete()) co_return end_of_front(start_, bytes());  // an object listed as empty
      co_await changed_.wait();
      continue;
    }
    job& j = o.jobs.front();
    const time_point asked = executor_.now();
    piece p = co_await j.reading;
    const time_point now = executor_.now();
    window_.took(j.reserved, now - asked, now);
    const std::uint64_t offset = j.offset;
    taken_ = j.reserved;
    o.jobs.pop_front();
    const bool last = o.jobs.empty() && o.complete();
    if (o.asking) {
      std::unique_ptr<object_check> answer = co_await o.asking;
      o.asking = spawned<std::unique_ptr<object_check>>();
      o.judge(std::move(answer));
    }
    if (o.check) {
      o.check->add(p.data, p.crc);
      if (last) co_await o.check->compare(offset);  // before anybody takes the object for complete
    }
    if (last) co_return end_of_front(offset, std::move(p.data));
    co_return chunk(o.info, offset, std::move(p.data), false);
  }
}

MILLRACE_INLINE void part_scheduler::open_object::judge(std::unique_ptr<object_check> answer) {
  if (answer && !answer->etag().empty() && !etag.empty() && answer->etag() != etag) {
    throw changed_error("the object changed while it was read: ETag " + etag + " became " + answer->etag(),
                        where{info->shown(), std::nullopt, std::string()});
  }
  check = std::move(answer);
}

MILLRACE_INLINE chunk part_scheduler::end_of_front(std::uint64_t offset, bytes data) {
  chunk last(open_.front().info, offset, std::move(data), true);
  open_.pop_front();
  changed_.notify();
  return last;
}

MILLRACE_INLINE std::size_t part_scheduler::next_part(const open_object& o) const noexcept {
  constexpr std::size_t smallest = 256 * KiB;
  const std::uint64_t before = o.next_offset - start_;
  if (!o.first || o.rest || before >= options_.part) return options_.part;
  return std::min(options_.part, smallest + static_cast<std::size_t>(before));
}

MILLRACE_COROUTINE_BODY void part_scheduler::issue() {
  const std::size_t window = window_.bytes();
  bool front = true;
  for (open_object& o : open_) {
    while (o.rest ? !o.reading_rest && !o.rest_ended : !o.learning && !o.complete()) {
      // Later objects leave one part to the front one: it can always go on.
      const std::size_t limit = front ? window : window - options_.part;
      const std::uint64_t left = o.info->size && !o.rest ? *o.info->size - o.next_offset : options_.part;
      const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(left, next_part(o)));
      // Small objects get memory of their own size; the others hold a whole slab, whatever they fill of it.
      const std::size_t reserved = o.info->size && !o.rest && length <= options_.part / 8 ? length : options_.part;
      if (used_ + reserved > limit) return;
      used_ += reserved;
      o.jobs.emplace_back(o.next_offset, reserved);
      job& j = o.jobs.back();
      if (o.rest) {
        o.reading_rest = true;
        j.reading = spawned<piece>(executor_, read_rest(o, j), stage_);
      } else {
        o.learning = !o.info->size;
        j.reading = spawned<piece>(executor_, read_part(o, o.next_offset, length), stage_);
        if (o.next_offset == 0) ask_check(o, length);
        o.next_offset += length;
      }
    }
    front = false;
  }
}

MILLRACE_INLINE void part_scheduler::ask_check(open_object& o, std::size_t first_part) {
  if (o.info->size && *o.info->size <= first_part) return;
  task<std::unique_ptr<object_check>> asking = store_->check(*o.info, o.etag);
  if (asking) o.asking = spawned<std::unique_ptr<object_check>>(executor_, std::move(asking), stage_);
}

MILLRACE_COROUTINE_BODY task<part_scheduler::piece> part_scheduler::read_part(open_object& o, std::uint64_t offset,
                                                                             std::size_t length) {
  storage::part p;
  executor* const other = elsewhere();
  if (other != nullptr) {
    auto reading = [store = store_, object = *o.info, etag = o.etag, offset, length, slabs = slabs_]() mutable {
      return store->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
    };
    p = co_await run_on(*other, std::move(reading));
  } else {
    p = co_await store_->read(*o.info, o.etag, offset, length, slabs_);
  }
  count(p.data.size());
  check(o, p, offset, length);
  if (o.learning) {
    o.learning = false;
    o.rest = std::move(p.rest);
    if (!o.rest) o.info->size = p.total;
    o.next_offset = offset + p.data.size();
    issue();
    changed_.notify();
  }
  co_return piece(std::move(p.data), p.crc);
}

MILLRACE_COROUTINE_BODY task<part_scheduler::piece> part_scheduler::read_rest(open_object& o, job& j) {
  bytes data = co_await o.rest->next();
  count(data.size());
  j.offset = o.next_offset;
  o.next_offset += data.size();
  o.reading_rest = false;
  if (data.empty()) o.rest_ended = true;
  issue();
  changed_.notify();
  co_return piece(std::move(data), running_crc());
}

MILLRACE_INLINE executor* part_scheduler::elsewhere() noexcept {
  if (runtime_ == nullptr || store_->may_be_sequential()) return nullptr;
  executor& next = runtime_->next_loop();
  return &next == &executor_ ? nullptr : &next;
}

MILLRACE_INLINE void part_scheduler::check(open_object& o, const storage::part& p, std::uint64_t offset,
                                           std::size_t length) {
  const where at{o.info->shown(), offset, std::string()};
  if (o.etag.empty()) {
    o.etag = p.etag;
  } else if (!p.etag.empty() && p.etag != o.etag) {
    throw changed_error("the object changed while it was read: ETag " + o.etag + " became " + p.etag, at);
  }
  // Chunks show the shard to other threads: it is written before the first of them, and never again.
  if (offset == start_ && o.info->etag.empty() && !o.etag.empty()) o.info->etag = o.etag;
  if (p.rest) {
    if (o.learning) return;
    throw changed_error("the store stopped serving ranges of the object", at);
  }
  if (o.learning && !p.total) throw io_error(0, "the store does not tell the size of the object", at);
  if (!o.learning && p.total && *p.total != *o.info->size) {
    throw changed_error("the object is " + std::to_string(*p.total) + " bytes long, not " +
                            std::to_string(*o.info->size) + " as listed",
                        at);
  }
  const std::uint64_t size = o.learning ? *p.total : *o.info->size;
  const std::uint64_t due = size <= offset ? 0 : size - offset < length ? size - offset : length;
  if (p.data.size() != due) {
    throw io_error(0, "read " + std::to_string(p.data.size()) + " bytes instead of " + std::to_string(due), at);
  }
}

MILLRACE_COROUTINE_BODY task<void> part_scheduler::pull() {
  try {
    for (;;) {
      while (open_.size() >= options_.shards) co_await changed_.wait();
      auto s = co_await in_.next();
      if (!s) break;
      if (!store_->serves(s->url)) {
        throw configuration_error("no store is configured for this URL",
                                  where{s->shown(), std::nullopt, std::string()});
      }
      const bool empty = s->size && *s->size == 0;  // a folder's name, in listings
      open_.emplace_back(std::move(*s), start_, !empty && !std::exchange(begun_, true));
      issue();
      changed_.notify();
    }
  } catch (...) {
    error_ = std::current_exception();
  }
  upstream_ended_ = true;
  changed_.notify();
}

MILLRACE_COROUTINE_BODY async_generator<chunk> fetch_chunks(async_generator<shard> in,
                                                            std::shared_ptr<const storage> store,
                                                            fetch_options options, std::uint64_t start) {
  executor& ex = co_await this_executor();
  stage_record* const stage = co_await this_stage();
  part_scheduler parts(std::move(in), std::move(store), options, start, ex, stage);
  for (;;) {
    auto c = co_await parts.next();
    if (!c) break;
    co_yield give(*c);
  }
}

MILLRACE_INLINE fetch_stage::fetch_stage(std::shared_ptr<const storage> store, fetch_options options)
    : store_(std::move(store)), options_(options) {
  if (options.shards == 0 || options.part < 64 * KiB) {
    throw configuration_error("fetch needs at least one shard at a time and parts of 64 KiB or more");
  }
}

MILLRACE_COROUTINE_BODY stream<chunk> fetch_stage::operator()(async_generator<shard> in) const {
  const std::size_t kept = store_->keeps();
  return stream<chunk>(fetch_chunks(std::move(in), store_, options_, 0))
      .named("fetch", "raise its .window or .shards")
      .bounded(options_.shards, sum_of_bounds(options_.bytes(), kept));
}

}  // namespace millrace::detail
