// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/detail/block_sums.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/shards/range_scheduler.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/train/detail/epoch_losses.hpp>
#include <millrace/train/detail/epoch_walk.hpp>
#include <millrace/train/detail/rows_ahead.hpp>
#include <millrace/train/detail/slice_piece.hpp>
#include <millrace/train/detail/slice_reader.hpp>
#include <millrace/train/detail/training_plan.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The policy of epochs(): which ranges are wanted when, and how many bytes are held. The walk is planned ahead of the
/// consumer, and each time that it comes to samples of a track that no request reads yet, those of the slice that the
/// rank will take one after the other become a piece, whose ranges are wanted in the order in which they are needed. So
/// the schedule is that of the deadlines, and it does not end at the end of an epoch. range_scheduler decides when a
/// range is read, within options.requests and options.part, and slice_reader reads it and makes the samples.
///
/// The bound in bytes holds for pieces that are asked for or not taken completely. It is options.bytes at most: it
/// begins with the bytes of the open slices and 16 MiB, and the part beyond the slices grows as long as that spares the
/// consumer waiting (read_window), so that memory is used again before more is touched. Once it is reached, the walk
/// is not planned further while the consumer has planned samples; when it has none, the next sample is read alone, or
/// with its group, beyond the bound.
///
/// At the beginning, and after a resume, each track's samples of the first step are a separate piece, or one for each
/// of their slices: the first batch does not wait for slices. Until these have come, at most 16 MiB of slices are in
/// flight, so that they do not delay the first batch. For the first 10 ms they are not asked for at all until that
/// batch has been taken: a store nearby has sent it by then, and one that is far off loses little.
template <class Sample = sample>
class epoch_reader {
 public:
  epoch_reader(std::shared_ptr<const training_plan> plan, std::shared_ptr<epoch_losses> losses,
               const coroutine_context& here)
      : plan_(std::move(plan)),
        losses_(std::move(losses)),
        source_(*plan_),
        options_(source_.options),
        here_(here),
        ranges_(here, source_.store, bounds_of_requests(source_), {.beside_first = first_bytes}),
        slices_(source_, ranges_.reader(), here),
        walk_(source_.walk),
        first_room_(first_room(source_)),
        room_(first_room_ - std::min(first_bytes, first_room_), first_room_, options_.bytes),
        divides_(source_.walk.tracks % source_.walk.world == 0),
        rows_(here, arrived_, static_cast<std::size_t>(2 * (source_.walk.tracks / source_.walk.world + 1) + 64)) {
    for (std::size_t d = 0; d < source_.sets.size(); ++d) {
      const epoch_walk::plan& w = source_.walk;
      const index_set& indexes = *source_.sets[d].indexes;
      const std::uint64_t mean = indexes.sample_bytes() / indexes.samples() + 1;
      piece_samples_.push_back(samples_of_piece(options_.bytes, w.tracks, w.world, mean, w.sets[d].order.slice));
      any_in_memory_ = any_in_memory_ || indexes.in_memory();
    }
    if (here.stage() != nullptr) here.stage()->reads_within(0, options_.requests, options_.bytes, ".bytes");
    const epoch_walk::plan& w = source_.walk;
    const std::uint64_t step = w.batch * w.world;
    first_positions_ = first_positions(step, w.tracks);
    if (step <= first_positions_) {
      ranges_.leave_to_first(w.batch);
      first_alone_ = spawned<void>(here_, after_first());
    }
    if (options_.verify && source_.summed() && mean_sample(source_) >= 4 * block_sums::block) {
      ranges_.reader().sum_blocks();
    }
  }

  /// Plans as far as the bounds allow, and asks for it.
  void plan() {
    while (ahead_.size() < options_.ahead && plan_one()) {
    }
    const bool no_room = no_room_ != nullptr;
    ranges_.full(no_room || ahead_.size() >= options_.ahead, no_room ? &stage_record::kept_by_memory : nullptr);
    ranges_.start<slice_piece::range>(*this);
  }
  /// After plan(): whether there is nothing more.
  bool ended() const noexcept { return ahead_.empty() && !lacks_rows_; }
  /// After plan(): whether it waits for rows of an index in a store. It is to be called again when arrived().
  bool lacks_rows() const noexcept { return lacks_rows_; }
  /// Whether what the next sample needs has come, or has failed to. Where not: arrived().wait().
  bool ready() const noexcept {
    if (ahead_.empty()) return false;
    if (ahead_.front().piece == nullptr) return true;
    const slice_piece::wanted& w = ahead_.front().piece->at(ahead_.front().number);
    const slice_piece::range* const first = &range_of(ahead_.front());
    return std::all_of(first, first + w.ranges, [](const slice_piece::range& r) { return r.done; });
  }
  notifier& arrived() noexcept { return arrived_; }
  /// The consumer begins to wait for arrived(), or has waited.
  void consumer_waits(bool now) {
    ranges_.consumer_waits(now);
    if (now) ranges_.start<slice_piece::range>(*this);
  }

  /// The next sample. If it cannot be had, an empty entry takes its place, and failure() is the reason. If its bytes
  /// are damaged, damaged() says so: then take_again().
  Sample take() {
    taken_ = std::move(ahead_.front());
    ahead_.pop_front();
    ranges_.item_taken();
    failure_ = nullptr;
    damaged_ = false;
    Sample s;
    s.mark = taken_.mark;
    if (taken_.piece == nullptr) {
      if (taken_.in_memory) slices_.fill_of_rows(s, taken_.place, taken_.epoch);
      return s;
    }
    slice_piece::range* const first = &range_of(taken_);
    for (std::size_t i = 0; i < taken_.piece->at(taken_.number).ranges; ++i) {
      if (first[i].reading) first[i].reading = spawned<void>();
      if (failure_ == nullptr) failure_ = first[i].error;
    }
    if (failure_ == nullptr) fill_or_fail(s, *first);
    if (failure_ != nullptr) s = lost();
    note_taken();
    if (!damaged_) taken_.piece.reset();
    return s;
  }
  bool damaged() const noexcept { return damaged_; }
  /// Reads the damaged sample alone, or with its group, once more, beyond the bound in bytes; returns as take().
  task<Sample> take_again() {
    const slice_piece::range& r = range_of(taken_);
    slice_piece::range alone(r.shard);
    slice_piece::group group;
    bytes first;  // of a group they are not kept
    if (r.of != nullptr) {
      group = *r.of;
      alone.of = &group;
    } else {
      const sample_place& place = taken_.piece->at(taken_.number).place;
      const auto number = static_cast<std::size_t>(place.ordinal);
      alone.ordinal = r.ordinal;
      alone.field = r.field;
      const shard_index::rows* const rows = rows_of_taken();
      alone.begin = rows != nullptr ? rows->offset(number) : r.begin;
      alone.end = rows != nullptr ? rows->end(number) : r.end;
      first = r.data.slice(static_cast<std::size_t>(alone.begin - r.begin), alone.length());
    }
    const std::string before = text_of(failure_);
    second_reading again = co_await slices_.read_again(alone, before);
    Sample s;
    s.mark = taken_.mark;
    if (again.came()) {
      failure_ = nullptr;
      fill_or_fail(s, alone);
      again.compare(r.of == nullptr ? alone.data.view() == first.view()
                                    : failure_ != nullptr && text_of(failure_) == before);
    }
    if (failure_ != nullptr) {
      if (again.alike && r.of == nullptr) again.note += ", or the index is of other bytes";
      add_note(failure_, again.note);
      s = lost();
    }
    taken_.piece.reset();
    co_return std::move(s);
  }
  const std::exception_ptr& failure() const noexcept { return failure_; }
  /// The place of the sample that failed.
  const item_place& failed_place() const noexcept { return failed_place_; }
  /// After a failure of take(): the sample is lost, and the policy tolerates that.
  void note_loss() {
    losses_->add(taken_.mark, taken_.place.shard, source_.shown(taken_.place.shard), reason_of(failure_));
  }

 private:
  class planned {
   public:
    epoch_mark mark;
    std::shared_ptr<slice_piece> piece;  // null: padding, or in memory
    std::uint64_t number = 0;            // in its track
    bool in_memory = false;              // a row, at this place:
    sample_place place;                  // also of a sample that is lost
    std::uint64_t epoch = 0;             // of its data set
  };

  static constexpr std::size_t first_bytes = 16 * MiB;

  static slice_piece::range& range_of(const planned& p) { return p.piece->ranges()[p.piece->at(p.number).range]; }

  /// The first batch comes soon: before anything is known of the store, 16 MiB of samples are asked for.
  static host_share::bounds bounds_of_requests(const training_plan& s) {
    const std::uint64_t start = first_bytes / std::max<std::uint64_t>(mean_sample(s), 1);
    return {.bytes = s.options.bytes,
            .longest = s.options.part,
            .requests = s.options.requests,
            .start = std::clamp<std::size_t>(start, 6, std::max<std::size_t>(6, s.options.requests))};
  }

  /// The bytes that are held at first: the slices that are open, and 16 MiB.
  static std::size_t first_room(const training_plan& s) {
    std::size_t bytes = first_bytes;
    for (std::size_t d = 0; d < s.sets.size(); ++d) {
      const order_options& order = s.walk.sets[d].order;
      const std::uint64_t slab = slab_of_slice(*s.sets[d].indexes, order.slice);
      bytes += static_cast<std::size_t>((order.tracks / s.walk.world + 1) * slab);
    }
    return std::min(bytes, s.options.bytes);
  }

  /// The room grows as long as that spares the consumer waiting, but not if the link is full: more reads at a time
  /// would bring nothing.
  void note_taken() {
    if (!taken_.piece->ends_with(taken_.number)) return;
    const duration waited = ranges_.waited();
    host_share& share = share_of(taken_.piece->ranges().front().shard);
    const bool spares = !share.host().link_is_full();
    room_.took(taken_.piece->reserved(), spares ? waited : duration(0), here_.get_executor().now(),
               spares ? first_room_ + share.ahead(longest_) * 3 / 2 : 0);
  }

  static std::uint64_t mean_sample(const training_plan& s) {
    std::uint64_t samples = 0;
    std::uint64_t bytes = 0;
    for (const training_plan::dataset& set : s.sets) {
      samples += set.indexes->samples();
      bytes += set.indexes->sample_bytes();
    }
    return bytes / std::max<std::uint64_t>(samples, 1);
  }

  /// One more entry of the walk; false if there is none, or no room for it.
  bool plan_one() {
    if (!has_next_) {
      const std::uint64_t epoch = next_.known ? next_.epoch : UINT64_MAX;
      const std::uint64_t step = walk_.step_begin();
      if (!walk_.next(next_)) return false;
      has_next_ = true;
      if (next_.epoch != epoch) {
        open_.clear();
        will_need_first();
      } else if (!divides_ && walk_.step_begin() != step) {
        forget_passed();
      }
    }
    planned p;
    p.mark = next_;
    if (!next_.padding && !(any_in_memory_ && plan_in_memory(p))) {
      const std::uint64_t tracks = source_.walk.tracks;
      const std::uint64_t track = next_.position % tracks;
      p.number = next_.position / tracks;
      const auto at = open_.find(track);
      if (at != open_.end() && at->second->has(p.number)) {
        p.piece = at->second;
      } else {
        p.piece = opened(track);
        if (p.piece == nullptr) return false;
      }
      if (p.piece->ends_with(p.number)) open_.erase(track);
    }
    ahead_.push_back(std::move(p));
    has_next_ = false;
    return true;
  }

  /// The place of the next sample, if that is a row in memory; else false.
  bool plan_in_memory(planned& p) {
    const epoch_walk::place at = walk_.place_of(next_);
    const training_plan::dataset& set = source_.sets[at.set];
    if (!set.indexes->in_memory()) return false;
    p.in_memory = true;
    p.place = track_cursor(*at.order, at.track, at.number).next();
    p.place.shard += set.first;
    p.epoch = at.epoch;
    return true;
  }

  /// A piece that begins with the next sample, in `open_`; null where there is no room for it now, or no rows.
  std::shared_ptr<slice_piece> opened(std::uint64_t track) {
    const epoch_walk::plan& w = source_.walk;
    const std::uint64_t passed = next_.position - w.begin;  // of the first epoch
    const bool first = next_.epoch == w.begin_epoch && passed < first_positions_;
    std::shared_ptr<slice_piece> piece = std::move(no_room_);
    if (piece == nullptr) piece = made(first ? (first_positions_ - passed - 1) / w.tracks + 1 : UINT64_MAX);
    if (piece == nullptr) return nullptr;
    if (held_ + piece->reserved() > room_.bytes()) {
      if (!ahead_.empty()) {
        no_room_ = std::move(piece);
        return nullptr;
      }
      if (piece->samples() > 1 && piece->groups().empty()) piece = made(1);
    }
    piece->hold(held_);
    longest_ = std::max(longest_, piece->reserved() / std::max<std::size_t>(piece->ranges().size(), 1));
    for (slice_piece::range& r : piece->ranges()) {
      if (r.done) continue;
      const bool local = slices_.is_local(r);
      ranges_.want(std::shared_ptr<wanted_range>(piece, &r), share_of(r.shard), local, r.length(), first);
      if (local) room_.raise(first_room_ + ranges_.most_local_bytes());
    }
    open_[track] = piece;
    will_need_after(*piece);
    return piece;
  }
  /// Where a piece that begins with the next sample ends its slice: has the rows of the track's next one read.
  void will_need_after(const slice_piece& piece) {
    const epoch_walk::place at = walk_.place_of(next_);
    const std::uint64_t left = left_of_slice(*at.order, at.track, at.number);
    if (piece.samples() != left) return;
    const index_set& indexes = *source_.sets[at.set].indexes;
    if (indexes.rows_in_store()) {
      rows_.let_go(at.set, at.epoch, at.track, at.number);
      rows_.want(at.set, at.epoch, indexes, *at.order, at.track, at.number + left);
    } else {
      will_need(indexes, *at.order, at.track, at.number + left);
    }
  }
  /// From the next sample on, `most` of them: no more than of a slice, of what is to be held of one, and of what is
  /// taken of the track in this epoch. Null as long as the index's rows have not come.
  std::shared_ptr<slice_piece> made(std::uint64_t most) {
    const std::uint64_t tracks = source_.walk.tracks;
    const epoch_walk::place at = walk_.place_of(next_);
    const training_plan::dataset& set = source_.sets[at.set];
    // A part of a group that is unpacked as a whole takes its time and its memory, too.
    most = set.indexes->counts()->groups().empty() ? std::min(most, piece_samples_[at.set]) : UINT64_MAX;
    const std::uint64_t count = std::min({most, left_of_slice(*at.order, at.track, at.number),
                                          (source_.walk.end - 1 - next_.position) / tracks + 1});
    const slice_rows* rows = nullptr;
    if (set.indexes->rows_in_store()) {
      rows = rows_.find(at.set, at.epoch, *set.indexes, *at.order, at.track, at.number);
      lacks_rows_ = rows == nullptr;
      if (lacks_rows_) return nullptr;
    }
    const auto in_parts = [&](std::size_t part) {
      auto piece =
          std::make_shared<slice_piece>(*set.indexes, *at.order, at.track, at.number, count, part, options_.gap,
                                        &slices_.readers(at.set), rows);
      piece->place(next_.position / tracks, set.first, at.epoch);
      return piece;
    };
    const std::size_t part = room_.is_ahead() ? options_.part : share_of(set.first).part();
    std::shared_ptr<slice_piece> piece = in_parts(part);
    if (part < options_.part && piece->ranges().size() > 1 &&
        std::all_of(piece->ranges().begin(), piece->ranges().end(),
                    [&](const slice_piece::range& r) { return r.done || slices_.is_local(r); })) {
      piece = in_parts(options_.part);
    }
    return piece;
  }
  /// Lets the system read the index's rows for the pieces that the epoch begins with.
  void will_need_first() {
    epoch_walk::plan from = source_.walk;
    from.begin_epoch = next_.epoch;
    from.end_epoch = next_.epoch + 1;
    from.begin = walk_.step_begin();
    epoch_walk ahead(std::move(from));
    epoch_mark entry;
    for (std::uint64_t n = source_.walk.tracks / source_.walk.world + 1; n > 0 && ahead.next(entry); --n) {
      if (entry.padding) break;
      const epoch_walk::place at = ahead.place_of(entry);
      const index_set& indexes = *source_.sets[at.set].indexes;
      if (indexes.rows_in_store()) {
        rows_.want(at.set, at.epoch, indexes, *at.order, at.track, at.number);
      } else {
        will_need(indexes, *at.order, at.track, at.number);
      }
    }
  }
  /// If ranks share tracks, another one may take the end of a piece.
  void forget_passed() {
    const std::uint64_t tracks = source_.walk.tracks;
    for (auto at = open_.begin(); at != open_.end();) {
      at = at->second->last() * tracks + at->first < walk_.step_begin() ? open_.erase(at) : std::next(at);
    }
  }

  /// The first step does not have the store for itself any more.
  task<void> after_first() {
    co_await sleep_for(std::chrono::milliseconds(10));
    ranges_.leave_to_first(0);
    ranges_.start<slice_piece::range>(*this);
  }

  host_share& share_of(std::uint64_t number) { return ranges_.share_of(source_.url(number)); }

  friend range_scheduler;
  void came(slice_piece::range& r) noexcept {
    r.came();
    arrived_.notify();
  }
  task<void> read(slice_piece::range& r, range_scheduler::turn& turn) {
    return slices_.is_packed(r) ? read_packed(r, turn) : slices_.read(r, turn);
  }
  task<void> read_packed(slice_piece::range& r, range_scheduler::turn& turn) {
    co_await slices_.read(r, turn);
    turn.end();
    ranges_.start<slice_piece::range>(*this);  // the next ones do not wait for the pool
    co_await slices_.unpack(r);
  }

  /// The rows of the sample that was taken last; null if the index has none of it.
  const shard_index::rows* rows_of_taken() const noexcept {
    const slice_piece::wanted& w = taken_.piece->at(taken_.number);
    return slices_.has_rows(w.place) ? &taken_.piece->rows_of(w) : nullptr;
  }
  void fill_or_fail(Sample& s, const slice_piece::range& r) {
    try {
      slices_.fill(s, rows_of_taken(), taken_.piece->at(taken_.number).place, taken_.piece->epoch(), r);
    } catch (const error&) {
      failure_ = std::current_exception();
      damaged_ = true;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  /// The empty entry in the place of the sample taken last.
  Sample lost() {
    const sample_place& place = taken_.place = taken_.piece->at(taken_.number).place;
    const shard_index& index = source_.index(place.shard);
    const auto number = static_cast<std::size_t>(place.ordinal);
    const shard_index::rows* const rows = rows_of_taken();
    const std::uint64_t offset = rows != nullptr ? rows->offset(number) : index.offset(number);
    failed_place_.note(origin(slices_.named(place.shard, taken_.piece->epoch()), offset, place.ordinal), {});
    Sample s;
    s.mark = taken_.mark;
    s.mark.padding = true;
    return s;
  }
  const std::shared_ptr<const training_plan> plan_;
  const std::shared_ptr<epoch_losses> losses_;
  const training_plan& source_;
  const epochs_options& options_;
  const coroutine_context here_;
  range_scheduler ranges_;
  slice_reader slices_;
  epoch_walk walk_;
  const std::size_t first_room_;              // bytes
  read_window room_;                          // bytes
  std::vector<std::uint64_t> piece_samples_;  // at most, of each data set
  bool any_in_memory_ = false;                // of the data sets
  std::uint64_t first_positions_ = 1;  // those of the first step, of 16 samples a track at most: read before slices
  const bool divides_;                        // no two ranks share a track
  epoch_mark next_;                           // of the walk
  bool has_next_ = false;

  notifier arrived_;
  rows_ahead rows_;  // of indexes in stores
  bool lacks_rows_ = false;
  planned taken_;               // last
  bool damaged_ = false;        // its bytes are
  std::exception_ptr failure_;  // of it
  item_place failed_place_;
  std::size_t held_ = 0;                  // bytes
  std::size_t longest_ = 0;               // mean memory of a range, of the piece with the largest
  std::shared_ptr<slice_piece> no_room_;  // begins with next_, and is not opened
  std::unordered_map<std::uint64_t, std::shared_ptr<slice_piece>> open_;  // by track: planned in part
  std::deque<planned> ahead_;  // declared last, with open_: their requests refer to all of the above
  spawned<void> first_alone_;  // likewise
};

}  // namespace millrace::detail
