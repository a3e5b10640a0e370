// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/give.hpp>
#include <millrace/coro/runtime_parts.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/feed/detail/slice_piece.hpp>
#include <millrace/feed/detail/window_order.hpp>
#include <millrace/feed/detail/window_position.hpp>
#include <millrace/feed/epochs_options.hpp>
#include <millrace/feed/shard_deal.hpp>
#include <millrace/flow/detail/delivery.hpp>
#include <millrace/flow/detail/puller.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/sync/notifier.hpp>

namespace millrace::detail {

/// The sample at `spot`, whose bytes these are, in memory of its own. changed_error where it is not there.
sample sample_at(const window_order::spot& spot, const std::shared_ptr<const shard>& from, const bytes& data);

template <class Shard>
async_generator<Shard> one_shard(Shard s) {
  co_yield give(s);
}

/// The samples of a shard from `offset` on, where the sample number `ordinal` begins.
template <class Sample>
async_generator<Sample> samples_of(shard s, std::shared_ptr<const storage> store, fetch_options options,
                                   std::uint64_t offset, std::uint64_t ordinal) {
  tar::reader_options how;
  how.start = offset;
  auto chunks = detail::fetch_chunks(one_shard<shard>(std::move(s)), std::move(store), options, offset);
  return detail::group_members(detail::untar_plain_members(std::move(chunks), how), ordinal);
}

/// What epochs() reads without an index: the open shards, those behind them in the order, a few ahead, and, behind a
/// resume, the samples of the window, by ranges, in the order in which they will leave.
template <class Sample = sample>
class window_reader {
 public:
  class open_shard {
   public:
    open_shard(executor& ex, stage_record* stage, async_generator<Sample> samples, std::size_t items,
               std::size_t byte_count, delivery<Sample> yielded, notifier& arrived)
        : pull(ex, stage, std::move(samples), items, byte_count, yielded, arrived) {}
    puller<Sample> pull;
    bool known = false;  // its version has been noted
  };

  window_reader(window_order order, std::shared_ptr<const storage> store, const epochs_options& options,
                std::shared_ptr<window_position> position, executor& ex, stage_record* stage,
                delivery<Sample> yielded)
      : order_(std::move(order)),
        store_(std::move(store)),
        options_(options),
        position_(std::move(position)),
        executor_(ex),
        stage_(stage),
        runtime_(ex.runtime()),
        yielded_(yielded),
        slots_(order_.held().size()),
        ahead_epoch_(order_.epoch()) {
    ask_again();
  }
  window_reader(const window_reader&) = delete;
  window_reader& operator=(const window_reader&) = delete;

  const window_order& order() const noexcept { return order_; }
  notifier& changed() noexcept { return changed_; }

  /// Opens what is read now, and shards behind it.
  void open_ahead() {
    if (std::exchange(opened_, true)) return;
    if (order_.over()) {
      if (ahead_epoch_ == order_.epoch()) next_ahead();
    } else {
      for (const window_order::place& p : order_.places()) {
        if (!at_end(p)) open(order_.epoch(), p, order_.shard_of(p));
      }
    }
    if (ahead_epoch_ == order_.epoch()) ahead_number_ = std::max(ahead_number_, order_.next_number());
    while (open_.size() < options_.shards + spare && ahead_epoch_ < order_.plan().end_epoch) {
      const std::vector<std::size_t>& numbers = ahead_epoch_ == order_.epoch() ? order_.numbers() : ahead_numbers_;
      if (ahead_number_ >= numbers.size()) {
        next_ahead();
        continue;
      }
      window_order::place p;
      p.number = ahead_number_;
      open(ahead_epoch_, p, numbers[static_cast<std::size_t>(ahead_number_)]);
      ++ahead_number_;
    }
  }

  /// Of order().asked(): null where nothing of it is left to read.
  open_shard* asked() noexcept {
    const auto found = open_.find({order_.epoch(), order_.asked().number});
    return found == open_.end() ? nullptr : found->second.get();
  }
  /// Its next sample, which has come, goes into the window.
  void take() {
    open_shard& from = *asked();
    from.pull.hand_over();
    Sample s = std::move(from.pull.front());
    from.pull.pop();
    if (s.from.end <= s.from.offset) {
      throw archive_error("samples of this archive cannot be found again by their place", s.from.at(s.key));
    }
    if (!std::exchange(from.known, true)) position_->note_version(order_.shard_of(order_.asked()), s.from);
    position_->note(window_order::event::taken(s.from.offset, s.from.end));
    order_.take(s.from.offset, s.from.end);
    slots_.emplace_back();
    slots_.back().item.emplace(compact(std::move(s)));
  }
  /// It has no more.
  void close() {
    opened_ = false;
    open_.erase({order_.epoch(), order_.asked().number});
    position_->note(window_order::event::shard_ended());
    order_.shard_ended();
  }
  void note_loss(const std::exception_ptr& failure) {
    std::string reason = "an exception that is no std::exception";
    try {
      std::rethrow_exception(failure);
    } catch (const error& e) {
      reason = e.reason();
    } catch (const std::exception& e) {
      reason = e.what();
    } catch (...) {
    }
    position_->note_loss(order_.shard_of(order_.asked()), order_, reason);
  }

  /// The next sample of the order leaves the window: it is here when ready().
  void draw() {
    position_->note(window_order::event::drawn());
    const std::size_t at = order_.draw();
    leaving_ = std::move(slots_[at]);
    if (at + 1 != slots_.size()) slots_[at] = std::move(slots_.back());
    slots_.pop_back();
  }
  bool ready() const noexcept { return leaving_.item || leaving_.from->done; }
  Sample leaving() {
    if (leaving_.item) return std::move(*leaving_.item);
    range& r = *leaving_.from;
    if (r.error) std::rethrow_exception(r.error);
    return std::move(r.samples.at(leaving_.begin));
  }

  void next_epoch() {
    position_->note(window_order::event::next_epoch());
    order_.next_epoch();
    opened_ = false;
    slots_.clear();
    leaving_ = slot();
    waiting_.clear();
    ranges_.clear();
    busy_ = busy_bytes_ = early_left_ = 0;
    open_.erase(open_.begin(), open_.lower_bound({order_.epoch(), 0}));
    if (ahead_epoch_ < order_.epoch()) next_ahead();
  }

 private:
  static constexpr std::size_t spare = 2;           // shards that are opened before their turn
  static constexpr std::size_t later_requests = 8;  // for what the first batch does not need, at once

  /// Samples of the window that are read again, by one request.
  class range {
   public:
    explicit range(std::uint64_t number) noexcept : shard_number(number) {}
    std::uint64_t shard_number;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t leaves = UINT64_MAX;  // before the first of them, so many samples leave
    std::vector<window_order::spot> spots;
    std::map<std::uint64_t, Sample> samples;  // by their offsets, when done
    bool done = false;
    std::exception_ptr error;
    spawned<void> reading;
  };
  class slot {
   public:
    std::optional<Sample> item;
    range* from = nullptr;  // where it is read again: no item
    std::uint64_t begin = 0;
  };

  bool at_end(const window_order::place& p) const {
    if (p.offset == 0 || open_.count({order_.epoch(), p.number}) != 0) return false;
    const shard s = position_->version_of(order_.shard_of(p));
    return s.size && p.offset >= *s.size;
  }
  void next_ahead() {
    ahead_epoch_ = std::max(ahead_epoch_ + 1, order_.epoch());
    ahead_number_ = 0;
    const window_plan& plan = order_.plan();
    if (ahead_epoch_ == order_.epoch() || ahead_epoch_ >= plan.end_epoch) return;
    ahead_numbers_ =
        shard_deal(plan.shards, plan.seed, ahead_epoch_, plan.rank.world_size).of_rank(plan.rank.index);
  }
  void open(std::uint64_t epoch, const window_order::place& p, std::size_t number) {
    std::unique_ptr<open_shard>& at = open_[{epoch, p.number}];
    if (at != nullptr) return;
    shard s = stamped(number, epoch);
    if (!store_->serves(s.url)) {
      throw configuration_error("no store is configured for this URL", where{s.shown(), std::nullopt, {}});
    }
    const std::size_t share = options_.bytes / (options_.shards + spare);
    fetch_options how;
    how.shards = 1;
    how.part = std::max<std::size_t>(64 * KiB, std::min(options_.part, share / 4));
    how.window = share / 2;
    at = std::make_unique<open_shard>(
        executor_, stage_, samples_of<Sample>(std::move(s), store_, how, p.offset, p.ordinal),
        std::max<std::size_t>(1, options_.ahead / (options_.shards + spare)), share / 4, yielded_, changed_);
  }
  shard stamped(std::size_t number, std::uint64_t epoch) const {
    shard s = position_->version_of(number);
    s.seed = order_.plan().seed;
    s.epoch = epoch;
    s.dealt = true;
    return s;
  }

  /// Behind a resume: makes ranges of what the window holds. Those samples that the first batch will have are apart, so
  /// that it need not wait for what lies between them.
  void ask_again() {
    const std::vector<window_order::spot>& held = order_.held();
    const std::vector<std::uint64_t> leaves = when_they_leave();
    std::vector<std::size_t> by_place(held.size());
    std::iota(by_place.begin(), by_place.end(), std::size_t{0});
    const auto place_of_slot = [&](std::size_t i) {
      return std::make_tuple(leaves[i] >= options_.batch, held[i].shard, held[i].begin);
    };
    std::sort(by_place.begin(), by_place.end(),
              [&](std::size_t a, std::size_t b) { return place_of_slot(a) < place_of_slot(b); });
    bool early = true;
    for (const std::size_t i : by_place) {
      const window_order::spot& s = held[i];
      range* const last = ranges_.empty() ? nullptr : ranges_.back().get();
      const bool as_early = leaves[i] < options_.batch;
      const bool joins = last != nullptr && early == as_early && last->shard_number == s.shard &&
                         s.begin >= last->end && s.begin - last->end < options_.gap &&
                         s.end - last->begin <= options_.part;
      early = as_early;
      if (!joins) {
        ranges_.push_back(std::make_unique<range>(s.shard));
        ranges_.back()->begin = s.begin;
      }
      range& r = *ranges_.back();
      r.end = s.end;
      r.leaves = std::min(r.leaves, leaves[i]);
      r.spots.push_back(s);
      slots_[i].from = &r;
      slots_[i].begin = s.begin;
    }
    for (const std::unique_ptr<range>& r : ranges_) {
      waiting_.push_back(r.get());
      if (r->leaves < options_.batch) ++early_left_;
    }
    std::sort(waiting_.begin(), waiting_.end(), [](range* x, range* y) { return x->leaves < y->leaves; });
    begin_requests();
  }
  /// For each slot, how many samples leave before its own: guessed, as if all samples were of one size.
  std::vector<std::uint64_t> when_they_leave() const {
    constexpr std::size_t newer = SIZE_MAX;
    const std::vector<window_order::spot>& held = order_.held();
    std::uint64_t bytes = 0;
    for (const window_order::spot& s : held) bytes += s.end - s.begin;
    // A window that is full lacks the sample that left last.
    const bool full = bytes + bytes / (held.size() + 1) >= order_.plan().window_bytes;
    const std::size_t slots = full ? held.size() + 1 : order_.plan().window;
    std::vector<std::size_t> window(held.size());
    std::iota(window.begin(), window.end(), std::size_t{0});
    const std::uint64_t most = 4 * held.size();
    std::vector<std::uint64_t> leaves(held.size(), most);
    for (std::uint64_t n = 0; n < most && !window.empty(); ++n) {
      for (int pulls = 0; pulls < 2 && window.size() < slots && !order_.places().empty(); ++pulls) {
        window.push_back(newer);
      }
      const std::size_t of = std::min(window.size(), order_.plan().window);
      std::size_t& drawn = window[drawn_slot(order_.plan().seed, order_.epoch(), order_.count() + n, of)];
      if (drawn != newer) leaves[drawn] = n;
      drawn = window.back();
      window.pop_back();
    }
    return leaves;
  }
  /// What the first batch waits for has the link for itself; then there are a few at a time.
  void begin_requests() {
    while (!waiting_.empty()) {
      range& r = *waiting_.front();
      const auto length = static_cast<std::size_t>(r.end - r.begin);
      const bool early = r.leaves < options_.batch;
      if (busy_ >= (early ? options_.requests : std::min(options_.requests, later_requests))) break;
      if (!early && early_left_ != 0) break;
      if (busy_ != 0 && busy_bytes_ + slab_for(length) > options_.bytes / 2) break;
      waiting_.pop_front();
      ++busy_;
      busy_bytes_ += slab_for(length);
      r.reading = spawned<void>(executor_, read_again(*this, r), stage_);
    }
  }
  static task<void> read_again(window_reader& self, range& r) {
    const auto length = static_cast<std::size_t>(r.end - r.begin);
    try {
      shard s = self.stamped(static_cast<std::size_t>(r.shard_number), self.order_.epoch());
      storage::part p = co_await self.store_->read(s, s.etag, r.begin, length, self.slabs(length));
      const where at{s.shown(), r.begin, {}};
      if (p.rest) throw configuration_error("resume: the store serves no ranges of the object", at);
      if (!s.etag.empty() && !p.etag.empty() && p.etag != s.etag) {
        throw changed_error("resume: the shard has changed: its ETag was " + s.etag + " and is " + p.etag, at);
      }
      if (p.data.size() != length) {
        throw io_error(0, "read " + std::to_string(p.data.size()) + " bytes instead of " + std::to_string(length), at);
      }
      if (self.stage_ != nullptr) stage_record::add(self.stage_->read, static_cast<std::int64_t>(length));
      if (s.etag.empty()) s.etag = p.etag;
      const auto from = std::make_shared<const shard>(std::move(s));
      for (const window_order::spot& spot : r.spots) {
        const auto begin = static_cast<std::size_t>(spot.begin - r.begin);
        r.samples.emplace(spot.begin,
                          sample_at(spot, from, p.data.slice(begin, static_cast<std::size_t>(spot.end - spot.begin))));
      }
    } catch (...) {
      r.error = std::current_exception();
    }
    r.done = true;
    if (r.leaves < self.options_.batch) --self.early_left_;
    --self.busy_;
    self.busy_bytes_ -= slab_for(length);
    self.begin_requests();
    self.changed_.notify();
  }
  slab_pool slabs(std::size_t length) {
    const std::size_t size = slab_for(length);
    return runtime_ != nullptr ? runtime_->slabs(size) : slab_pool(size);
  }

  window_order order_;
  const std::shared_ptr<const storage> store_;
  const epochs_options options_;  // without the texts
  const std::shared_ptr<window_position> position_;
  executor& executor_;
  stage_record* const stage_;
  runtime_parts* const runtime_;
  delivery<Sample> yielded_;
  notifier changed_;
  std::vector<slot> slots_;  // as order_.held()
  slot leaving_;
  bool opened_ = false;        // all that is to be open is
  std::uint64_t ahead_epoch_;  // the next shard to open
  std::uint64_t ahead_number_ = 0;
  std::vector<std::size_t> ahead_numbers_;  // of that epoch, where it is not the order's
  std::deque<range*> waiting_;
  std::size_t busy_ = 0;
  std::size_t busy_bytes_ = 0;
  std::size_t early_left_ = 0;  // ranges for the first batch that have not come
  // Declared last: their tasks refer to all of the above.
  std::vector<std::unique_ptr<range>> ranges_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::unique_ptr<open_shard>> open_;  // by epoch and number
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/feed/detail/impl/window_reader.ipp>
#endif
