// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
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
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/range_reader.hpp>
#include <millrace/shards/range_scheduler.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The part scheduler of `fetch`. Parts are requested in the order in which they will be delivered, as far as sizes are
/// known, until the window is full: one large object gets as many connections as many small ones. The window covers
/// parts in flight and parts that have arrived and are not yet taken; it grows towards the bound as read_window says.
/// One part of it is always left to the object that is delivered next, so that later objects cannot hold all of it
/// while the consumer waits for an earlier one.
///
/// The first object begins with small parts, so that its first bytes need not wait for later ones: a part is as long as
/// all before it and 256 KiB, at most options.part. The first part of an object of unknown size is somewhat longer than
/// the latest such objects were: who reads small ones by name has as many in flight as who lists them. How an object is
/// cut depends on nothing else. If reads are quick, no more than twice the delivered bytes and a quarter of
/// options.part are asked for at first. Each reader of a group has its share of that. It begins with one part of 512
/// KiB, and asks for no other until one of the group has come; if reads are quick, parts grow more slowly.
class part_scheduler {
 public:
  MILLRACE_COROUTINE part_scheduler(async_generator<shard> in, std::shared_ptr<const storage> store,
                                    fetch_options options, std::uint64_t start, std::shared_ptr<fetch_group> group,
                                    const coroutine_context& here);

  /// The next piece in order; nullopt at the end. Its share of the bound is freed by the following call.
  MILLRACE_COROUTINE task<std::optional<chunk>> next();

 private:
  struct piece {
    piece() = default;
    piece(bytes content, const running_crc& sum) noexcept : data(std::move(content)), crc(sum) {}
    bytes data;
    running_crc crc;
  };
  struct job {
    job(std::uint64_t at, std::size_t bytes, spawned<piece> r) noexcept
        : offset(at), reserved(bytes), reading(std::move(r)) {}
    std::uint64_t offset;
    std::size_t reserved;
    spawned<piece> reading;
  };
  struct open_object {
    open_object(shard s, std::uint64_t start, bool is_first, const range_reader& reader, host_share& host)
        : info(std::make_shared<shard>(std::move(s))), object(*info), share(host), first(is_first), next_offset(start) {
      if (reader.store().over_network(info->url)) source.reset(new chunk_source(reader, info));
    }
    /// True if every part has been asked for.
    bool complete() const noexcept { return rest ? rest_ended : info->size && next_offset >= *info->size; }

    /// Takes the store's answer to asked_check().
    void judge(std::unique_ptr<object_check> answer);

    const std::shared_ptr<shard> info;  // size and ETag are filled in by the first answer, before a chunk shows it
    shard object;              // the version that is read, as far as it is known
    host_share& share;         // of its host
    const bool first;          // of all that have bytes
    std::uint64_t next_offset;
    std::uint64_t looked_at = UINT64_MAX;  // the next_offset that `local` is of
    bool local = false;     // the next part is, see storage::is_local()
    bool learning = false;  // the first part of an object of unknown size is under way
    std::unique_ptr<sequential_rest> rest;
    bool rest_ended = false;
    bool reading_rest = false;
    std::shared_ptr<chunk_source> source;  // null: what comes is as it is
    std::unique_ptr<object_check> check;
    piece unchecked;  // delivered last; it may be corrected until the next one is requested; empty: none
    std::uint64_t unchecked_offset = 0;
    spawned<std::unique_ptr<object_check>> asking;  // for the check; empty once it is there
    std::deque<job> jobs;                 // declared last: jobs refer to the object
  };

  chunk end_of_front(std::uint64_t offset, bytes data);
  /// Null where the store serves no ranges.
  std::shared_ptr<chunk_source> source_of(const open_object& o) const;

  /// Adds the piece that was delivered last to the object's check, with its corrections.
  static void check_delivered(open_object& o);
  /// Adds the last piece, and compares. If it is damaged, bytes that were not delivered yet are read once more.
  MILLRACE_COROUTINE task<piece> compare(open_object& o, std::uint64_t offset, piece last);

  /// How long the next part of an object is, if the object goes on for that long.
  std::size_t next_part(const open_object& o) const noexcept;
  /// True if reads of it are quick, see host_share::is_quick().
  bool is_quick(const open_object& o) const noexcept;
  /// True if its next part is read from a local disk.
  bool next_is_local(open_object& o) const;

  /// Slabs for a part of this length: of options.part, or of a half, a quarter, ... of it.
  slab_pool slabs_for(std::size_t length);

  /// Objects open at once, at most.
  std::size_t most_open() const noexcept;
  /// True if .shards, and nothing else, keeps it from reading more while its consumer waits.
  bool kept_by_shards() const noexcept;

  /// Asks the store for all that the window allows, in the order of delivery. A part that cannot be begun, for lack of
  /// memory say, is left as it was.
  MILLRACE_COROUTINE void issue();

  /// The check of an object that read() may not have compared. Empty if the store has no check.
  spawned<std::unique_ptr<object_check>> asked_check(const open_object& o) const;

  /// `small`: likely a whole object, of a size that is not known. `one`: that, or known to be one.
  MILLRACE_COROUTINE task<piece> read_part(open_object& o, std::uint64_t offset, std::size_t length, slab_pool slabs,
                                           bool small, bool one, range_scheduler::turn turn);

  MILLRACE_COROUTINE task<piece> read_rest(open_object& o);

  void count(std::size_t read) noexcept {
    stage_record::add(here_.stage(), &stage_record::read, static_cast<std::int64_t>(read));
  }

  /// Learns of the object by the part that came from `offset` on.
  void learn(open_object& o, storage::part& p, std::uint64_t offset);

  // For the pump of the source.
  friend pump<shard, part_scheduler>;
  bool has_room() const noexcept { return open_.size() < most_open(); }
  MILLRACE_COROUTINE void take(shard&& s);
  void source_ended() noexcept { changed_.notify(); }

  async_generator<shard> in_;
  const fetch_options options_;
  const std::uint64_t start_;  // of what is read of each object
  const std::shared_ptr<fetch_group> group_;  // may be null
  const std::size_t readers_;                 // of that
  const coroutine_context here_;
  range_scheduler ranges_;
  read_window window_;
  std::size_t used_ = 0;   // bytes of the window
  std::size_t delivered_ = 0;  // of all parts, until the share of them is options.bytes()
  std::size_t taken_ = 0;  // of those, with the consumer
  bool begun_ = false;     // an object that has bytes has been opened
  std::size_t likely_ = MiB;  // the length of the first part where the size is unknown: by those that have been learnt
  bool any_learnt_ = false;   // of them
  notifier changed_;
  std::deque<open_object> open_;  // in the order of delivery; coroutines refer to them
  pump<shard, part_scheduler> pump_{changed_};  // declared last: it refers to all of the above
};

MILLRACE_COROUTINE_BODY part_scheduler::part_scheduler(async_generator<shard> in, std::shared_ptr<const storage> store,
                                                       fetch_options options, std::uint64_t start,
                                                       std::shared_ptr<fetch_group> group,
                                                       const coroutine_context& here)
    : in_(std::move(in)),
      options_(options),
      start_(start),
      group_(std::move(group)),
      readers_(group_ != nullptr ? group_->readers : 1),
      here_(here),
      ranges_(here, std::move(store),
              {.bytes = options.bytes(), .longest = options.part, .requests = options.requests}, {}),
      window_(multiplied(2, options.part), options.bytes()) {
  if (stage_record* const stage = here.stage()) {
    stage->reads_within(options.shards, options.requests, options.window, ".window");
  }
  pump_.start(here, *this, in_);
}

MILLRACE_COROUTINE_BODY task<std::optional<chunk>> part_scheduler::next() {
  used_ -= std::exchange(taken_, 0);
  for (;;) {
    while (open_.empty()) {
      if (pump_.ended()) {
        pump_.rethrow();
        co_return std::nullopt;
      }
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
    ranges_.consumer_waits(true);
    piece p = co_await j.reading;
    ranges_.consumer_waits(false);
    window_.took(j.reserved, ranges_.waited(), here_.get_executor().now(), o.share.ahead() * 3 / 2);
    const std::uint64_t offset = j.offset;
    taken_ = j.reserved;
    if (delivered_ / readers_ < options_.bytes()) delivered_ += j.reserved;
    o.jobs.pop_front();
    const bool last = o.jobs.empty() && o.complete();
    if (o.asking) {
      std::unique_ptr<object_check> answer = co_await o.asking;
      o.asking = spawned<std::unique_ptr<object_check>>();
      o.judge(std::move(answer));
    }
    if (o.check) {
      check_delivered(o);
      if (last) {  // before the object counts as complete
        p = co_await compare(o, offset, std::move(p));
      } else {
        o.unchecked_offset = offset;
        o.unchecked = p;
      }
    }
    if (last) co_return end_of_front(offset, std::move(p.data));
    chunk c(o.info, offset, std::move(p.data), false);
    c.source = source_of(o);
    co_return std::move(c);
  }
}

MILLRACE_INLINE void part_scheduler::check_delivered(open_object& o) {
  if (o.unchecked.data.empty()) return;
  if (o.source != nullptr && o.source->take_mended(o.unchecked_offset, o.unchecked.data)) {
    o.unchecked.crc = running_crc();
  }
  o.check->add(o.unchecked.data, o.unchecked.crc);
  o.unchecked = piece();
}

MILLRACE_INLINE std::shared_ptr<chunk_source> part_scheduler::source_of(const open_object& o) const {
  if (o.rest || o.source == nullptr) return nullptr;
  o.source->set_version(o.object.etag);
  return o.source;
}

MILLRACE_COROUTINE_BODY task<part_scheduler::piece> part_scheduler::compare(open_object& o, std::uint64_t offset,
                                                                           piece last) {
  const std::unique_ptr<object_check> before = o.check->fork();
  o.check->add(last.data, last.crc);
  std::exception_ptr damaged;
  try {
    co_await o.check->compare(offset);
  } catch (const s3::checksum_error&) {
    damaged = std::current_exception();
  }
  const std::shared_ptr<chunk_source> source = source_of(o);
  if (damaged && before != nullptr && source != nullptr) {
    second_reading again = co_await source->read(offset, last.data, text_of(damaged));
    const bool differs = again.differs();
    if (differs) {
      last = piece(again.parts.front(), running_crc());
      before->add(last.data, last.crc);
      try {
        co_await before->compare(offset);
        damaged = nullptr;
      } catch (const s3::checksum_error&) {
        damaged = std::current_exception();
      }
    }
    const bool whole = offset == start_;  // else the damage may be in what was delivered
    if (differs && !whole) again.note.insert(0, "its last part was ");
    if (damaged && (whole || !again.alike)) add_note(damaged, again.note);
  }
  if (damaged) std::rethrow_exception(damaged);
  co_return std::move(last);
}

MILLRACE_INLINE void part_scheduler::open_object::judge(std::unique_ptr<object_check> answer) {
  if (answer && !answer->etag().empty() && !object.etag.empty() &&
      !millrace::detail::same_etag(answer->etag(), object.etag)) {
    throw version_changed(object.etag, answer->etag(), where{info->shown(), std::nullopt, std::string()});
  }
  check = std::move(answer);
}

MILLRACE_INLINE chunk part_scheduler::end_of_front(std::uint64_t offset, bytes data) {
  chunk last(open_.front().info, offset, std::move(data), true);
  last.source = source_of(open_.front());
  open_.pop_front();
  changed_.notify();
  return last;
}

MILLRACE_INLINE std::size_t part_scheduler::next_part(const open_object& o) const noexcept {
  const std::size_t smallest = readers_ > 1 ? 512 * KiB : 256 * KiB;
  if (o.rest) return options_.part;
  const std::uint64_t before = o.next_offset - start_;
  std::size_t part = o.local ? options_.part : o.share.part();
  // Each request costs money and a place in what the store takes: a consumer that does not wait needs no short ones.
  if (window_.is_ahead()) part = std::max(part, std::min(options_.part, std::bit_floor(window_.bytes() / 4)));
  if (!o.info->size) part = std::min(part, likely_);
  if (!o.first || before >= part) return part;
  const auto growth = static_cast<std::size_t>(before);
  // A group reads in lengths of slabs, of which it has many.
  if (readers_ > 1 && is_quick(o)) return std::min(part, std::bit_floor(smallest + growth / readers_));
  return std::min(part, smallest + growth);
}

MILLRACE_INLINE bool part_scheduler::is_quick(const open_object& o) const noexcept {
  return o.share.is_quick() || (group_ != nullptr && group_->is_quick());
}

MILLRACE_INLINE bool part_scheduler::next_is_local(open_object& o) const {
  if (o.looked_at != o.next_offset) {
    const std::uint64_t left = o.info->size ? *o.info->size - o.next_offset : 0;
    const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(left, options_.part));
    o.local = !o.rest && length != 0 && ranges_.store().is_local(o.object, o.next_offset, length);
    o.looked_at = o.next_offset;
  }
  return o.local;
}

MILLRACE_INLINE slab_pool part_scheduler::slabs_for(std::size_t length) {
  std::size_t slab = options_.part;
  while (slab > options_.part / 8 && slab / 2 >= length) slab /= 2;
  return ranges_.reader().pool_of(here_.runtime(), slab, options_.part);
}

MILLRACE_INLINE std::size_t part_scheduler::most_open() const noexcept {
  if (options_.shards != 0) return options_.shards;
  return std::max<std::size_t>(8, 2 * ranges_.most_requests());
}

MILLRACE_INLINE bool part_scheduler::kept_by_shards() const noexcept {
  if (options_.shards == 0 || open_.size() < options_.shards) return false;
  if (!ranges_.consumer_waits() || pump_.ended()) return false;
  return std::all_of(open_.begin(), open_.end(), [](const open_object& o) { return o.complete(); });
}

MILLRACE_COROUTINE_BODY void part_scheduler::issue() {
  std::size_t window = window_.bytes();
  if (!open_.empty() && !next_is_local(open_.front()) && is_quick(open_.front())) {
    window = std::min(window, (options_.part / 4 + 2 * delivered_) / readers_);
  }
  ranges_.full(false, nullptr);
  bool front = true;
  for (open_object& o : open_) {
    // More than is on its way: a disk does not wait for the consumer to take a part.
    if (front && next_is_local(o)) window_.raise(multiplied(range_scheduler::most_local + 2, options_.part));
    while (o.rest ? !o.reading_rest && !o.rest_ended : !o.learning && !o.complete()) {
      // Later objects leave one part to the front one: it can always go on.
      const std::size_t limit = front ? window : window - std::min(options_.part, window / 2);
      const bool local = next_is_local(o);
      const bool may = o.rest || ranges_.may_begin(o.share, local, options_.part);
      if (!may && !(front && o.jobs.empty())) return;
      if (readers_ > 1 && !local && !group_->has_seen() && !o.jobs.empty()) return;
      const bool known = o.info->size && !o.rest;
      const std::uint64_t left = known ? *o.info->size - o.next_offset : options_.part;
      const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(left, next_part(o)));
      // Small objects get memory of their own size; the others hold a whole slab, whatever they fill of it.
      const slab_pool slabs = slabs_for(known ? length : options_.part);
      const std::size_t reserved = !o.rest && !slabs.worth_a_slab(length) ? length : slabs.slab_bytes();
      // With nothing on its way, the front one goes on: a window cut short may be less than a part.
      if (used_ + reserved > limit && !(front && o.jobs.empty())) {
        // A window that does not grow any more would bring nothing by it.
        ranges_.full(true, window_.bytes() >= options_.bytes() ? &stage_record::kept_by_memory
                                                               : &stage_record::kept_by_link);
        return;
      }
      if (o.rest) {
        o.jobs.emplace_back(o.next_offset, reserved, spawned<piece>(here_, read_rest(o)));
        o.reading_rest = true;
      } else {
        const bool learns = !o.info->size;
        const bool small = learns && any_learnt_ && o.next_offset == 0 && !slabs.worth_a_slab(length);
        range_scheduler::turn turn = ranges_.begin(o.share, local, length);
        const bool one = small || (o.next_offset == 0 && o.info->size && *o.info->size <= length);
        spawned<piece> reading(here_, read_part(o, o.next_offset, length, slabs, small, one, std::move(turn)));
        spawned<std::unique_ptr<object_check>> asking;
        if (o.next_offset == 0 && !one) asking = asked_check(o);
        o.jobs.emplace_back(o.next_offset, reserved, std::move(reading));
        if (asking) o.asking = std::move(asking);
        o.learning = learns;
        o.next_offset += length;
      }
      used_ += reserved;
    }
    front = false;
  }
}

MILLRACE_INLINE spawned<std::unique_ptr<object_check>> part_scheduler::asked_check(const open_object& o) const {
  task<std::unique_ptr<object_check>> asking = ranges_.store().check(*o.info, o.object.etag);
  if (!asking) return {};
  return spawned<std::unique_ptr<object_check>>(here_, std::move(asking));
}

MILLRACE_COROUTINE_BODY task<part_scheduler::piece> part_scheduler::read_part(open_object& o, std::uint64_t offset,
                                                                              std::size_t length, slab_pool slabs,
                                                                              bool small, bool one,
                                                                              range_scheduler::turn turn) {
  turn.asks();
  const range_reader::by function = small ? range_reader::by::read_small : range_reader::by::read;
  storage::part p;
  {
    range_scheduler::turn until_answered = std::move(turn);
    p = co_await ranges_.reader().read(o.object, offset, length, std::move(slabs), function);
    if (group_ != nullptr) group_->saw(p.first_byte);
    const std::size_t open = most_open();
    until_answered.finished(p, offset == start_ && o.object.size == p.data.size());
    if (kept_by_shards()) stage_record::add(here_.stage(), &stage_record::kept_by_shards, 1);
    if (most_open() > open) changed_.notify();
  }
  learn(o, p, offset);
  if (one && !p.whole && !o.rest) o.asking = asked_check(o);
  if (o.learning) {
    o.learning = false;
    o.next_offset = offset + p.data.size();
    changed_.notify();
  }
  issue();
  co_return piece(std::move(p.data), p.crc);
}

MILLRACE_COROUTINE_BODY task<part_scheduler::piece> part_scheduler::read_rest(open_object& o) {
  bytes data = co_await o.rest->next();
  count(data.size());
  o.jobs.back().offset = o.next_offset;  // its own: one at a time reads the rest
  o.next_offset += data.size();
  o.reading_rest = false;
  if (data.empty()) o.rest_ended = true;
  issue();
  changed_.notify();
  co_return piece(std::move(data), running_crc());
}

MILLRACE_INLINE void part_scheduler::learn(open_object& o, storage::part& p, std::uint64_t offset) {
  // Chunks show the shard to other threads: it is written before the first of them, and never again.
  if (offset == start_) {
    if (o.info->etag.empty()) o.info->etag = o.object.etag;
    o.info->encoding = o.object.encoding;
  }
  const auto at = [&] { return where{o.info->shown(), offset, std::string()}; };
  if (!o.learning && p.rest) throw changed_error("the store stopped serving ranges of the object", at());
  if (!o.learning) return;
  if (!p.rest && !p.total) throw io_error("the store does not report the size of the object", at());
  o.rest = std::move(p.rest);
  if (o.rest) return;
  o.info->size = p.total;
  const std::uint64_t size = *p.total - std::min<std::uint64_t>(*p.total, start_);
  const auto likely = static_cast<std::size_t>(std::min<std::uint64_t>(size + size / 4, options_.part));
  likely_ = std::max({likely, std::exchange(any_learnt_, true) ? likely_ / 8 * 7 : 0, 64 * KiB});
}

MILLRACE_COROUTINE_BODY void part_scheduler::take(shard&& s) {
  if (!ranges_.store().serves(s.url)) {
    throw configuration_error("no store is configured for this URL", where{s.shown(), std::nullopt, std::string()});
  }
  const bool empty = s.size && *s.size == 0;  // a folder's name, in listings
  host_share& share = ranges_.share_of(s.url);
  if (!begun_) window_.raise(share.ahead());
  open_.emplace_back(std::move(s), start_, !empty && !std::exchange(begun_, true), ranges_.reader(), share);
  issue();
  changed_.notify();
}

MILLRACE_COROUTINE_BODY async_generator<chunk> fetch_chunks(async_generator<shard> in,
                                                            std::shared_ptr<const storage> store,
                                                            fetch_options options, std::uint64_t start,
                                                            std::shared_ptr<fetch_group> group) {
  const coroutine_context here = co_await this_context();
  part_scheduler parts(std::move(in), std::move(store), options, start, std::move(group), here);
  for (;;) {
    auto c = co_await parts.next();
    if (!c) break;
    co_yield give(*c);
  }
}

MILLRACE_INLINE fetch_stage::fetch_stage(std::shared_ptr<const storage> store, fetch_options options)
    : store_(std::move(store)), options_(options) {
  if (options.part < 64 * KiB || options.requests == 0) {
    throw configuration_error("fetch needs parts of 64 KiB or more and at least one request at a time");
  }
}

MILLRACE_COROUTINE_BODY stream<chunk> fetch_stage::operator()(async_generator<shard> in) const {
  const std::size_t objects = options_.shards == 0 ? multiplied(2, options_.requests) : options_.shards;
  const std::size_t kept = store_->keeps();
  return stream<chunk>(fetch_chunks(std::move(in), store_, options_, 0))
      .named("fetch", ".window")
      .bounded(objects, added(options_.bytes(), kept));
}

}  // namespace millrace::detail
