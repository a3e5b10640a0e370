// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/shards/range_scheduler.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/train/detail/slice_piece.hpp>
#include <millrace/train/detail/window_order.hpp>
#include <millrace/train/detail/window_position.hpp>
#include <millrace/train/epochs_options.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The sample at `spot`, whose bytes these are, in memory of its own. changed_error where it is not there.
sample sample_at(const window_order::spot& spot, const std::shared_ptr<const shard>& from, const bytes& data);

/// The shard, whose samples are those of an epoch of epochs().
inline shard stamped(shard s, std::uint64_t seed, std::uint64_t epoch) {
  s.seed = seed;
  s.epoch = epoch;
  s.dealt = true;
  return s;
}

/// After a resume without an index: reads the samples that the window held again, by ranges, in the order in which they
/// will be yielded. Reading begins with the object, and has ended where it is destroyed.
template <class Sample = sample>
class held_samples {
  class range;

 public:
  /// The place of one of these samples.
  class place {
   public:
    place() = default;
    place(range& from, std::uint64_t begin) noexcept : from_(&from), begin_(begin) {}
    bool ready() const noexcept { return from_->done; }
    /// Once, when ready(). Throws why it could not be read.
    Sample take() {
      if (from_->error) std::rethrow_exception(from_->error);
      return std::move(from_->samples.at(begin_));
    }

   private:
    range* from_ = nullptr;
    std::uint64_t begin_ = 0;
  };

  /// Reads the samples that `order` holds now. `order` and `options` outlive it; `changed` is notified when samples
  /// have been read.
  held_samples(const window_order& order, std::shared_ptr<const storage> store, const epochs_options& options,
               std::shared_ptr<const window_position> position, const coroutine_context& here, notifier& changed)
      : order_(order),
        requests_(here, std::move(store),
                  {.bytes = options.bytes / 2,
                   .longest = options.part,
                   .requests = options.requests,
                   .start = options.requests},
                  {.bytes = options.bytes / 2, .later = later_requests, .beside_first = 0}),
        options_(options),
        position_(std::move(position)),
        here_(here),
        changed_(changed),
        places_(order.held().size()) {
    make_ranges();
    requests_.start<range>(*this);
  }
  held_samples(const held_samples&) = delete;
  held_samples& operator=(const held_samples&) = delete;

  /// The place of the sample that was in the window's slot `slot` at first; valid until clear().
  place at(std::size_t slot) const { return places_[slot]; }
  /// They are not wanted any more.
  void clear() noexcept {
    requests_.clear();
    ranges_.clear();
  }

 private:
  static constexpr std::size_t later_requests = 8;  // for what the first batch does not need, at once

  /// Samples of the window that are read again, by one request.
  class range : public wanted_range {
   public:
    explicit range(std::uint64_t number) noexcept : shard_number(number) {}
    std::uint64_t shard_number;
    std::uint64_t leaves = UINT64_MAX;  // before the first of them, so many samples leave
    std::vector<window_order::spot> spots;
    std::map<std::uint64_t, Sample> samples;  // by their offsets, when done
  };
  /// Makes ranges of the samples that the window holds. Samples of the first batch are apart, so that it need not wait
  /// for the bytes between them.
  void make_ranges() {
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
        ranges_.push_back(std::make_shared<range>(s.shard));
        ranges_.back()->begin = s.begin;
      }
      range& r = *ranges_.back();
      r.end = s.end;
      r.leaves = std::min(r.leaves, leaves[i]);
      r.spots.push_back(s);
      places_[i] = place(r, s.begin);
    }
    std::sort(ranges_.begin(), ranges_.end(),
              [](const std::shared_ptr<range>& x, const std::shared_ptr<range>& y) { return x->leaves < y->leaves; });
    for (const std::shared_ptr<range>& r : ranges_) {
      const shard from = position_->version_of(static_cast<std::size_t>(r->shard_number));
      const bool local = requests_.store().is_local(from, r->begin, r->length());
      requests_.want(r, requests_.share_of(from.url), local, range_reader::slab_for(r->length()), is_early(*r));
      if (is_early(*r)) ++early_left_;
    }
    if (early_left_ != 0) requests_.consumer_waits(true);
  }
  bool is_early(const range& r) const noexcept { return r.leaves < options_.batch; }
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
  /// Ranges of the first batch have the link for themselves, as many requests as the store is seen to take; then there
  /// are a few at a time, and requests beyond their share are left to readers whose consumer waits.
  friend range_scheduler;
  void came(range& r) noexcept {
    r.done = true;
    if (is_early(r) && --early_left_ == 0) requests_.consumer_waits(false);
    changed_.notify();
  }
  task<void> read(range& r, range_scheduler::turn& turn) {
    shard s =
        stamped(position_->version_of(static_cast<std::size_t>(r.shard_number)), order_.plan().seed, order_.epoch());
    range_reader& reader = requests_.reader();
    storage::part p = co_await reader.read(s, r.begin, r.length());
    turn.finished(p, true);
    const where at{s.shown(), r.begin, {}};
    if (p.rest) throw configuration_error("resume: the store serves no ranges of the object", at);
    if (p.data.size() != r.length()) throw range_reader::short_read(p.data.size(), r.length(), at);
    const auto from = std::make_shared<const shard>(std::move(s));
    for (const window_order::spot& spot : r.spots) {
      const auto make = [&](const std::vector<bytes>& data) -> task<void> {
        r.samples.emplace(spot.begin, sample_at(spot, from, data.front()));
        co_return;
      };
      const auto begin = static_cast<std::size_t>(spot.begin - r.begin);
      std::vector<bytes> data(1, p.data.slice(begin, static_cast<std::size_t>(spot.end - spot.begin)));
      std::vector<byte_stretch> at_spot(1);
      at_spot.front() = {spot.begin, spot.end};
      co_await make_or_read_again(reader, *from, std::move(at_spot), std::move(data), make);
    }
  }

  const window_order& order_;
  range_scheduler requests_;
  const epochs_options& options_;
  const std::shared_ptr<const window_position> position_;
  const coroutine_context here_;
  notifier& changed_;
  std::vector<place> places_;
  std::size_t early_left_ = 0;                  // ranges for the first batch that have not come
  std::vector<std::shared_ptr<range>> ranges_;  // declared last: their tasks refer to all of the above
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/held_samples.ipp>
#endif
