// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/runtime_parts.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/feed/detail/epoch_walk.hpp>
#include <millrace/feed/detail/epochs_source.hpp>
#include <millrace/feed/detail/slice_piece.hpp>
#include <millrace/feed/epochs_options.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/feed/shard_index.hpp>
#include <millrace/io/run_on.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/sample_name.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/sync/notifier.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace::detail {

/// The schedule behind epochs(): the walk is planned ahead of the consumer, and each time that it comes to samples of a
/// track that no request reads yet, those of the slice that the rank will take one after the other become a piece,
/// whose requests wait for their turn in the order in which they are needed. So the schedule is that of the deadlines,
/// and it does not end at the end of an epoch.
///
/// The bound in bytes holds for pieces that are asked for or not taken completely. Where it is reached, the walk is not
/// planned further while the consumer has planned samples; when it has none, the next sample is read alone.
///
/// At the beginning, and behind a resume, the first sample of each track is a piece of its own: the first batch does
/// not wait for slices.
template <class Sample = sample>
class epoch_reader {
 public:
  epoch_reader(epochs_source source, executor& ex, stage_record* stage)
      : source_(std::move(source)),
        options_(source_.options),
        executor_(ex),
        stage_(stage),
        runtime_(ex.runtime()),
        walk_(source_.walk),
        divides_(source_.walk.tracks % source_.walk.world == 0) {
    for (std::size_t d = 0; d < source_.sets.size(); ++d) piece_samples_.push_back(samples_of_piece(d));
  }

  /// Plans as far as the bounds allow, and asks for it.
  void plan() {
    while (ahead_.size() < options_.ahead && plan_one()) {
    }
    start();
  }
  /// After plan(): whether there is nothing more.
  bool ended() const noexcept { return ahead_.empty(); }
  /// Whether what the next sample needs has come, or has failed to. Where not: arrived().wait().
  bool ready() const noexcept { return ahead_.front().piece == nullptr || range_of(ahead_.front()).done; }
  notifier& arrived() noexcept { return arrived_; }

  /// The next sample; where it cannot be had, an entry without anything in its place, and failure() is why.
  Sample take() {
    const planned next = std::move(ahead_.front());
    ahead_.pop_front();
    failure_ = nullptr;
    Sample s;
    s.mark = next.mark;
    if (next.piece == nullptr) return s;
    slice_piece::range& r = range_of(next);
    if (r.reading) r.reading = spawned<void>();
    failure_ = r.error;
    if (failure_ == nullptr) {
      try {
        fill(s, next.piece->at(next.number).place, next.piece->epoch(), r);
        return s;
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
    failed_shard_ = next.piece->at(next.number).place.shard;
    s = Sample();
    s.mark = failed_ = next.mark;
    s.mark.padding = true;
    return s;
  }
  const std::exception_ptr& failure() const noexcept { return failure_; }
  /// After a failure of take(): the sample is lost, and that is borne.
  void note_loss() {
    std::string reason;
    try {
      std::rethrow_exception(failure_);
    } catch (const error& e) {
      reason = e.reason();
    } catch (const std::exception& e) {
      reason = e.what();
    } catch (...) {
      reason = "an exception that is no std::exception";
    }
    source_.losses->add(failed_, failed_shard_, source_.shown(failed_shard_), reason);
  }

 private:
  class planned {
   public:
    epoch_mark mark;
    std::shared_ptr<slice_piece> piece;  // null: padding
    std::uint64_t number = 0;            // in its track
  };
  /// A request's place among those under way.
  class turn {
   public:
    explicit turn(std::size_t& busy) noexcept : busy_(&busy) { ++busy; }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    ~turn() { end(); }
    void end() noexcept {
      if (std::size_t* const busy = std::exchange(busy_, nullptr); busy != nullptr) --*busy;
    }

   private:
    std::size_t* busy_;
  };

  static slice_piece::range& range_of(const planned& p) { return p.piece->ranges()[p.piece->at(p.number).range]; }

  std::uint64_t samples_of_piece(std::size_t d) const {
    const epoch_walk::plan& w = source_.walk;
    const index_set& indexes = *source_.sets[d].indexes;
    const std::uint64_t mean = indexes.sample_bytes() / indexes.samples() + 1;
    return detail::samples_of_piece(options_.bytes, w.tracks, w.world, mean, w.sets[d].order.slice);
  }

  /// One more entry of the walk; false where there is none, or no room for it.
  bool plan_one() {
    if (!has_next_) {
      if (!walk_.next(next_)) return false;
      has_next_ = true;
      if (next_.epoch != epoch_) open_.clear();
      if (!divides_ && (next_.epoch != epoch_ || walk_.step_begin() != step_begin_)) forget_passed();
      epoch_ = next_.epoch;
      step_begin_ = walk_.step_begin();
    }
    planned p;
    p.mark = next_;
    if (!next_.padding) {
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

  /// A piece that begins with the next sample, in `open_`; null where there is no room for it now.
  std::shared_ptr<slice_piece> opened(std::uint64_t track) {
    std::shared_ptr<slice_piece> piece = std::move(no_room_);
    if (piece == nullptr) {
      const epoch_walk::plan& w = source_.walk;
      const bool cold = next_.epoch == w.begin_epoch && next_.position - w.begin < w.tracks;
      piece = made(cold ? 1 : UINT64_MAX);
    }
    if (held_ + piece->reserved() > options_.bytes) {
      if (!ahead_.empty()) {
        no_room_ = std::move(piece);
        return nullptr;
      }
      if (piece->samples() > 1) piece = made(1);
    }
    piece->hold(held_);
    for (std::size_t i = 0; i < piece->ranges().size(); ++i) waiting_.emplace_back(piece, i);
    open_[track] = piece;
    return piece;
  }
  /// From the next sample on, `most` of them: no more than of a slice, of what is to be held of one, and of what is
  /// taken of the track in this epoch.
  std::shared_ptr<slice_piece> made(std::uint64_t most) {
    const std::uint64_t tracks = source_.walk.tracks;
    const epoch_walk::place at = walk_.place_of(next_);
    const epochs_source::dataset& set = source_.sets[at.set];
    const std::uint64_t count = std::min({most, left_of_slice(*at.order, at.track, at.number), piece_samples_[at.set],
                                          (source_.walk.end - 1 - next_.position) / tracks + 1});
    auto piece = std::make_shared<slice_piece>(*set.indexes, *at.order, at.track, at.number, count, options_.part,
                                               options_.gap);
    piece->place(next_.position / tracks, set.first, at.epoch);
    return piece;
  }
  /// Where ranks share tracks, another one may take the end of a piece.
  void forget_passed() {
    const std::uint64_t tracks = source_.walk.tracks;
    for (auto at = open_.begin(); at != open_.end();) {
      at = at->second->last() * tracks + at->first < walk_.step_begin() ? open_.erase(at) : std::next(at);
    }
  }

  /// Begins the requests whose turn it is.
  void start() {
    while (busy_ < options_.requests && !waiting_.empty()) {
      const std::shared_ptr<slice_piece> piece = waiting_.front().first.lock();
      const std::size_t number = waiting_.front().second;
      waiting_.pop_front();
      if (piece == nullptr) continue;  // nobody wants it any more
      slice_piece::range& r = piece->ranges()[number];
      auto place = std::make_unique<turn>(busy_);
      r.reading = spawned<void>(executor_, read(r, std::move(place)), stage_);
    }
  }

  task<void> read(slice_piece::range& r, std::unique_ptr<turn> place) {
    try {
      const shard object = object_of(r.shard);
      storage::part p;
      try {
        executor* const other = elsewhere();
        if (other != nullptr) {
          auto reading = [store = source_.store, object, begin = r.begin, length = r.length(),
                          slabs = slabs(r.length())]() mutable {
            return store->read(object, object.etag, begin, length, std::move(slabs));
          };
          p = co_await run_on(*other, std::move(reading));
        } else {
          p = co_await source_.store->read(object, object.etag, r.begin, r.length(), slabs(r.length()));
        }
      } catch (const changed_error& e) {
        throw stale_index_error("the index \"" + source_.index(r.shard).name() +
                                    "\" is of another version of this shard: " + e.reason(),
                                where{object.shown(), r.begin, {}});
      }
      check(r, object, p);
      if (stage_ != nullptr) stage_record::add(stage_->read, static_cast<std::int64_t>(p.data.size()));
      r.data = std::move(p.data);
    } catch (...) {
      r.error = std::current_exception();
    }
    r.done = true;
    place->end();
    start();
    arrived_.notify();
  }

  void check(const slice_piece::range& r, const shard& object, const storage::part& p) {
    const where at{object.shown(), r.begin, {}};
    if (p.rest)
      throw configuration_error("the store serves no ranges of the object: samples cannot be read by an index", at);
    shard seen(object.url, p.total, p.etag);
    source_.index(r.shard).check(seen);
    if (!p.etag.empty() &&
        object.etag != p.etag) {  // an index without an ETag: all parts are of the first one's version
      const std::string& first = etags_.try_emplace(r.shard, p.etag).first->second;
      if (first != p.etag) {
        throw changed_error("the object changed while it was read: ETag " + first + " became " + p.etag, at);
      }
    }
    if (p.data.size() != r.length()) {
      throw io_error(0, "read " + std::to_string(p.data.size()) + " bytes instead of " + std::to_string(r.length()),
                     at);
    }
  }

  shard object_of(std::uint64_t number) const {
    const shard_index& index = source_.index(number);
    std::string etag = index.etag();
    if (const auto known = etags_.find(number); etag.empty() && known != etags_.end()) etag = known->second;
    return shard(source_.url(number), index.object_size(), std::move(etag));
  }

  executor* elsewhere() noexcept {
    if (runtime_ == nullptr || source_.store->may_be_sequential()) return nullptr;
    executor& next = runtime_->next_loop();
    return &next == &executor_ ? nullptr : &next;
  }
  slab_pool slabs(std::size_t length) {
    const std::size_t size = slab_for(length);
    const auto known = pools_.find(size);
    if (known != pools_.end()) return known->second;
    return pools_.emplace(size, runtime_ != nullptr ? runtime_->slabs(size) : slab_pool(size)).first->second;
  }

  /// The shard as the samples of an epoch of its data set name it.
  const std::shared_ptr<const shard>& named(std::uint64_t number, std::uint64_t epoch) {
    std::shared_ptr<const shard>& known = named_[number];
    if (known == nullptr || known->epoch != epoch) {
      shard object = object_of(number);
      object.seed = source_.walk.seed;
      object.epoch = epoch;
      object.dataset = static_cast<std::uint32_t>(source_.dataset_of(number));
      object.dealt = true;
      known = std::make_shared<const shard>(std::move(object));
    }
    return known;
  }

  void fill(Sample& s, const sample_place& place, std::uint64_t epoch, const slice_piece::range& r) {
    const shard_index& index = source_.index(place.shard);
    const auto number = static_cast<std::size_t>(place.ordinal);
    s.from = origin(named(place.shard, epoch), index.offset(number), place.ordinal);
    s.key = key_of(s, index, number, r);
    const std::size_t fields = index.field_count(number);
    s.fields.reserve(fields);
    for (std::size_t i = 0; i < fields; ++i) {
      const shard_index::field f = index.field_at(number, i);
      bytes body = r.data.slice(static_cast<std::size_t>(f.offset - r.begin), static_cast<std::size_t>(f.size));
      if (options_.verify && index.has_checksums()) verify(s, f, body);
      s.fields.emplace_back(std::string(f.extension), std::move(body));
    }
  }
  /// The key, from the header of the sample's first member: the index knows its hash alone.
  std::string key_of(const Sample& s, const shard_index& index, std::size_t number, const slice_piece::range& r) const {
    const std::uint64_t begin = index.offset(number);
    const shard_index::field first = index.field_at(number, 0);
    const auto head = static_cast<std::size_t>(first.offset + first.size - begin);
    tar::reader_options how;
    how.start = begin;
    tar::reader reader(s.from.from->shown(), how);
    reader.feed(r.data.slice(static_cast<std::size_t>(begin - r.begin), head));
    tar::entry e;
    bool found = false;
    while (!found && reader.next(e)) found = e.is_regular() && sample_name::parse(e.name).is_sample();
    std::string key(found ? sample_name::parse(e.name).key() : std::string_view());
    // Headers that foreign indexes do not know of may give a member another name.
    const bool known = index.has_keys() && index.has_headers();
    if (known && (!found || key_hash(key) != index.key_hash(number))) {
      throw stale_index_error("the index \"" + index.name() + "\" has another sample at this place", s.from.at(key));
    }
    return key;
  }
  static void verify(const Sample& s, const shard_index::field& f, const bytes& body) {
    const std::uint32_t is = crc32c(0, body.data(), body.size());
    if (is == f.crc) return;
    char text[64];
    std::snprintf(text, sizeof text, "%08x and not %08x", is, f.crc);
    throw archive_error("the CRC32C of field \"" + std::string(f.extension) + "\" is " + text + " as in the index",
                        where{s.from.from->shown(), f.offset, s.key});
  }

  const epochs_source source_;
  const epochs_options& options_;
  executor& executor_;
  stage_record* const stage_;
  runtime_parts* const runtime_;
  std::map<std::size_t, slab_pool> pools_;                // by size
  std::unordered_map<std::uint64_t, std::string> etags_;  // of shards whose index has none
  std::unordered_map<std::uint64_t, std::shared_ptr<const shard>> named_;

  epoch_walk walk_;
  std::vector<std::uint64_t> piece_samples_;  // at most, of each data set
  const bool divides_;  // no two ranks share a track
  epoch_mark next_;     // of the walk
  bool has_next_ = false;
  std::uint64_t epoch_ = UINT64_MAX;
  std::uint64_t step_begin_ = 0;

  notifier arrived_;
  std::exception_ptr failure_;  // of the sample taken last
  epoch_mark failed_;           // where it stands
  std::uint64_t failed_shard_ = 0;
  std::size_t held_ = 0;                                                    // bytes
  std::size_t busy_ = 0;                                                    // requests
  std::deque<std::pair<std::weak_ptr<slice_piece>, std::size_t>> waiting_;  // requests, the most urgent first
  std::shared_ptr<slice_piece> no_room_;                                    // made, and not opened
  std::unordered_map<std::uint64_t, std::shared_ptr<slice_piece>> open_;    // by track: planned in part
  std::deque<planned> ahead_;  // declared last, with open_: their requests refer to all of the above
};

}  // namespace millrace::detail
