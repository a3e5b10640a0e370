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
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/flow/detail/failures.hpp>
#include <millrace/flow/detail/inner_bounds.hpp>
#include <millrace/flow/detail/item_place.hpp>
#include <millrace/flow/detail/puller.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/order.hpp>

namespace millrace {

struct interleave_options {
  std::size_t width = 8;  ///< sources open at once
  millrace::order order = millrace::order::ordered;
  std::size_t ahead = 2;         ///< items of each source pulled and not yet taken
  std::size_t bytes = 64 * MiB;  ///< of all those items together, for types with byte_size()
  /// What the stages of one source may declare to hold, for run_options::budget: more is an error when the source is
  /// opened. 0: not stated.
  std::size_t inner_bytes = 0;
  /// What happens to sources that throw: skip ends such a source alone, behind the items that it gave before.
  failure_policy failures = {};
};

namespace detail {

/// The open sources of interleave(): part of its generator.
///
/// A task of its own (the opener) takes new sources from the stream while fewer than `width` are open, and starts a
/// puller for each. A source is open until its last item has been taken and its end has been noticed.
template <class Source>
class open_sources {
 public:
  using T = typename Source::value_type;
  using source = puller<T>;

  /// `bytes`: the share of one source.
  open_sources(async_generator<Source>& sources, const interleave_options& options, std::size_t bytes,
               delivery<T> yielded)
      : sources_(sources), options_(options), bytes_(bytes), yielded_(yielded) {}
  open_sources(const open_sources&) = delete;
  open_sources& operator=(const open_sources&) = delete;

  void start(executor& ex, stage_record* stage) { opener_ = spawned<void>(ex, opener(*this, ex, stage), stage); }

  /// Something has changed: an item, the end of a source, a new source, the end of the stream.
  auto wait() noexcept { return changed_.wait(); }

  /// A source that was opened and has not been given out yet, in the order of the stream.
  source* new_source() noexcept {
    if (given_ == all_.size()) return nullptr;
    return all_[given_++].get();
  }
  /// No new source will come: throws if that is because of an error.
  bool no_more_sources() {
    if (given_ < all_.size() || !stream_ended_) return false;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return true;
  }
  /// Drops a source that has ended; returns what it ended with, null for its own end.
  std::exception_ptr close(source& ended) {
    std::exception_ptr error = ended.take_error();
    std::size_t at = 0;
    while (all_[at].get() != &ended) ++at;
    if (at < given_) --given_;
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(at));
    room_.notify();
    return error;
  }

  /// In order of arrival: the source whose item came first, null when there is none.
  source* first_arrived() noexcept {
    if (arrivals_.empty()) return nullptr;
    source* const first = arrivals_.front();
    arrivals_.pop_front();
    return first;
  }
  /// A source that has ended and has nothing left, null when there is none.
  source* find_ended() noexcept {
    for (const auto& s : all_) {
      if (s->ended() && !s->has_item()) return s.get();
    }
    return nullptr;
  }
  bool none_open() const noexcept { return all_.empty(); }

 private:
  static task<void> opener(open_sources& self, executor& ex, stage_record* stage) {
    try {
      for (;;) {
        while (self.all_.size() >= self.options_.width) co_await self.room_.wait();
        std::optional<Source> given = co_await self.sources_.next();
        if (!given) break;
        stream<T> next(std::move(*given));
        check_inner_bounds(next, self.options_.inner_bytes, "interleave");
        auto* const arrivals = self.options_.order == order::arrival ? &self.arrivals_ : nullptr;
        self.all_.push_back(std::make_unique<source>(ex, stage, std::move(next).generator(), self.options_.ahead,
                                                     self.bytes_, self.yielded_, self.changed_, arrivals));
        self.changed_.notify();
      }
    } catch (...) {
      self.error_ = std::current_exception();
    }
    self.sources_ = async_generator<Source>();
    self.stream_ended_ = true;
    self.changed_.notify();
  }

  async_generator<Source>& sources_;
  const interleave_options options_;
  const std::size_t bytes_;
  delivery<T> yielded_;
  notifier changed_;
  notifier room_;
  bool stream_ended_ = false;
  std::exception_ptr error_;  // of the stream
  std::deque<source*> arrivals_;
  std::vector<std::unique_ptr<source>> all_;  // at most `width`, in the order of their opening
  std::size_t given_ = 0;           // of those, given out by new_source()
  spawned<void> opener_;            // declared last: destroyed first
};

/// Judges how a source ended: whether the stream goes on. Throws what is not to be borne.
inline bool goes_on(failures& bad, std::exception_ptr ended_with) {
  if (ended_with) return bad.forgive(std::move(ended_with), item_place());
  bad.succeeded();
  return true;
}

/// The epoch of an item that says it; 0 for others.
template <class T>
std::uint64_t epoch_of(const T& item) {
  return detail::mark_of_item(item).epoch;
}

template <class Source, class T = typename Source::value_type>
async_generator<T> interleaved_in_turn(async_generator<Source> sources, interleave_options options,
                                       std::size_t bytes) {
  executor& ex = co_await this_executor();
  stage_record* const stage = co_await this_stage();
  const delivery<T> yielded = co_await this_delivery<T>();
  open_sources<Source> open(sources, options, bytes, yielded);
  open.start(ex, stage);
  failures bad(options.failures, ex, stage, "interleave");
  std::vector<puller<T>*> places(options.width, nullptr);
  std::uint64_t epoch = 0;
  std::uint64_t following = UINT64_MAX;  // the least of those that were passed over
  std::size_t passed_over = 0;           // turns in a row, because the place is at another epoch
  for (std::size_t turn = 0; !places.empty();) {
    puller<T>*& place = places[turn];
    while (place == nullptr) {
      place = open.new_source();
      if (place != nullptr || open.no_more_sources()) break;
      co_await open.wait();
    }
    if (place == nullptr) {  // the stream has ended: one place less
      places.erase(places.begin() + static_cast<std::ptrdiff_t>(turn));
      if (turn == places.size()) turn = 0;
      passed_over = 0;
      continue;
    }
    while (!place->has_item() && !place->ended()) co_await open.wait();
    if (!place->has_item()) {
      if (!goes_on(bad, open.close(*std::exchange(place, nullptr)))) co_return;
      continue;  // the same place's turn again
    }
    const std::uint64_t its = epoch_of(place->front());
    if (its != epoch) {  // sources of the next epoch wait for those of this one
      following = std::min(following, its);
      if (++passed_over == places.size()) {
        epoch = std::exchange(following, UINT64_MAX);
        passed_over = 0;
      }
      turn = turn + 1 == places.size() ? 0 : turn + 1;
      continue;
    }
    following = UINT64_MAX;
    passed_over = 0;
    place->hand_over();
    co_yield give(place->front());
    place->pop();
    turn = turn + 1 == places.size() ? 0 : turn + 1;
  }
  bad.finish();
}

template <class Source, class T = typename Source::value_type>
async_generator<T> interleaved_as_they_come(async_generator<Source> sources, interleave_options options,
                                            std::size_t bytes) {
  executor& ex = co_await this_executor();
  stage_record* const stage = co_await this_stage();
  const delivery<T> yielded = co_await this_delivery<T>();
  open_sources<Source> open(sources, options, bytes, yielded);
  open.start(ex, stage);
  failures bad(options.failures, ex, stage, "interleave");
  for (;;) {
    if (puller<T>* const ended = open.find_ended()) {  // first: neither an error nor a new source waits for the others
      if (!goes_on(bad, open.close(*ended))) co_return;
    } else if (puller<T>* const arrived = open.first_arrived()) {
      arrived->hand_over();
      co_yield give(arrived->front());
      arrived->pop();
    } else if (open.none_open() && open.no_more_sources()) {
      bad.finish();
      co_return;
    } else {
      co_await open.wait();
    }
  }
}

}  // namespace detail
}  // namespace millrace
