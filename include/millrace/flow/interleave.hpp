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
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/flow/combine.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::inline MILLRACE_ABI {

struct interleave_options {
  std::size_t width = 8;  ///< sources open at once
  millrace::order order = millrace::order::ordered;
  std::size_t ahead = 2;         ///< items of each source pulled and not yet taken
  std::size_t bytes = 64 * MiB;  ///< of all those items together, for types with byte_size()
  /// Bytes that the stages of one source may declare to hold, for run_options::budget: more is an error when the source
  /// is opened. 0: not stated.
  std::size_t inner_bytes = 0;
  /// The treatment of sources that throw: skip ends such a source alone, after the items that it gave before.
  failure_policy failures = {};
};

namespace detail {

/// The open sources of interleave(): part of its generator.
///
/// New sources are taken from the stream while fewer than `width` are open, and each is read ahead. A source is open
/// until its last item has been taken and its end has been noticed.
template <class Source>
class open_sources {
 public:
  using T = typename Source::value_type;
  using source = read_ahead<T>;

  /// `bytes`: the share of one source.
  open_sources(async_generator<Source>& sources, const interleave_options& options, std::size_t bytes,
               generator_context<T> here)
      : options_(options), bytes_(bytes), here_(here) {
    pump_.start(here, *this, sources);
  }
  open_sources(const open_sources&) = delete;
  open_sources& operator=(const open_sources&) = delete;

  /// Something has changed: an item, the end of a source, a new source, the end of the stream.
  auto wait() noexcept { return changed_.wait(); }

  /// A source that was opened and has not been returned yet, in the order of the stream; null if there is none.
  source* new_source() noexcept {
    if (returned_ == all_.size()) return nullptr;
    return all_[returned_++].get();
  }
  /// No new source will come: throws if that is because of an error.
  bool no_more_sources() {
    if (returned_ < all_.size() || !pump_.ended()) return false;
    pump_.rethrow();
    return true;
  }
  /// Drops a source that has ended; returns its exception, null if it ended without one.
  std::exception_ptr close(source& ended) {
    std::exception_ptr error = ended.take_error();
    std::size_t at = 0;
    while (all_[at].get() != &ended) ++at;
    if (at < returned_) --returned_;
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(at));
    room_.notify();
    return error;
  }

  /// In order of arrival: the source of the item that came first, null if there is none.
  source* first_arrived() noexcept {
    if (arrivals_.empty()) return nullptr;
    source* const first = arrivals_.front();
    arrivals_.pop_front();
    return first;
  }
  /// A source that has ended and has nothing left, null if there is none.
  source* find_ended() noexcept {
    for (const auto& s : all_) {
      if (s->ended() && !s->has_item()) return s.get();
    }
    return nullptr;
  }
  bool none_open() const noexcept { return all_.empty(); }

 private:
  friend pump<Source, open_sources>;

  bool has_room() const noexcept { return all_.size() < options_.width; }
  void take(Source&& given) {
    stream<T> next(std::move(given));
    check_inner_bounds(next, options_.inner_bytes, "interleave");
    auto* const arrivals = options_.order == order::arrival ? &arrivals_ : nullptr;
    all_.push_back(std::make_unique<source>(here_, std::move(next).generator(), options_.ahead, bytes_, changed_,
                                            arrivals));
    changed_.notify();
  }
  void source_ended() noexcept { changed_.notify(); }

  const interleave_options options_;
  const std::size_t bytes_;
  const generator_context<T> here_;
  notifier changed_;
  notifier room_;
  std::deque<source*> arrivals_;
  std::vector<std::unique_ptr<source>> all_;  // at most `width`, in the order in which they were opened
  std::size_t returned_ = 0;                  // of those, by new_source()
  pump<Source, open_sources> pump_{room_};    // declared last
};

/// Applies the failure policy to the end of a source, `ended_with` null if it ended without an exception. Returns
/// whether the stream continues; throws an exception that the policy does not forgive.
inline bool continues(failures& bad, std::exception_ptr ended_with) {
  if (ended_with) return bad.forgive(std::move(ended_with), item_place());
  bad.succeeded();
  return true;
}

template <class Source, class T = typename Source::value_type>
async_generator<T> interleaved_in_turn(async_generator<Source> sources, interleave_options options,
                                       std::size_t bytes) {
  const generator_context<T> here = co_await this_generator<T>();
  open_sources<Source> open(sources, options, bytes, here);
  failures bad(options.failures, here, "interleave");
  std::vector<read_ahead<T>*> turns(options.width, nullptr);
  std::uint64_t epoch = 0;
  std::uint64_t following = UINT64_MAX;  // the least epoch of the sources that were passed over
  std::size_t passed_over = 0;           // turns in a row whose source is in another epoch
  for (std::size_t turn = 0; !turns.empty();) {
    read_ahead<T>*& source = turns[turn];
    while (source == nullptr) {
      source = open.new_source();
      if (source != nullptr || open.no_more_sources()) break;
      co_await open.wait();
    }
    if (source == nullptr) {  // the stream has ended: one turn less
      turns.erase(turns.begin() + static_cast<std::ptrdiff_t>(turn));
      if (turn == turns.size()) turn = 0;
      passed_over = 0;
      continue;
    }
    while (!source->has_item() && !source->ended()) co_await open.wait();
    if (!source->has_item()) {
      if (!continues(bad, open.close(*std::exchange(source, nullptr)))) co_return;
      continue;  // the next source takes over the turn
    }
    const std::uint64_t its_epoch = detail::mark_of_item(source->front()).epoch;
    if (its_epoch != epoch) {  // sources of the next epoch wait for those of this one
      following = std::min(following, its_epoch);
      if (++passed_over == turns.size()) {
        epoch = std::exchange(following, UINT64_MAX);
        passed_over = 0;
      }
    } else {
      following = UINT64_MAX;
      passed_over = 0;
      co_yield give(source->yielding());
      source->pop();
    }
    turn = turn + 1 == turns.size() ? 0 : turn + 1;
  }
  bad.finish();
}

template <class Source, class T = typename Source::value_type>
async_generator<T> interleaved_as_they_come(async_generator<Source> sources, interleave_options options,
                                            std::size_t bytes) {
  const generator_context<T> here = co_await this_generator<T>();
  open_sources<Source> open(sources, options, bytes, here);
  failures bad(options.failures, here, "interleave");
  for (;;) {
    // Ended sources come first: neither their errors nor their successors wait for the others' items.
    if (read_ahead<T>* const ended = open.find_ended()) {
      if (!continues(bad, open.close(*ended))) co_return;
    } else if (read_ahead<T>* const arrived = open.first_arrived()) {
      co_yield give(arrived->yielding());
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

/// Returned by interleave().
class interleave_stage : public detail::library_stage {
 public:
  explicit interleave_stage(interleave_options options) : options_(options) {
    if (options.width == 0) throw configuration_error("interleave: .width must not be 0");
    if (options.ahead == 0) throw configuration_error("interleave: .ahead must not be 0");
  }

  /// For the compiler's message: why it does not take items of type T.
  template <class T>
  static constexpr void explain() {
    static_assert(detail::never_v<T>,
                  "interleave takes a stream of generators: make one of each item first, as in shards | map(open) | "
                  "interleave()");
  }

  template <class Source>
    requires detail::is_source_v<Source>
  stream<typename Source::value_type> operator()(async_generator<Source> sources) && {
    using T = typename Source::value_type;
    const std::size_t items = detail::multiplied(options_.width, options_.ahead);
    const std::size_t bytes = options_.bytes / options_.width;
    stream<T> made = options_.order == order::ordered
                         ? detail::interleaved_in_turn<Source>(std::move(sources), options_, bytes)
                         : detail::interleaved_as_they_come<Source>(std::move(sources), options_, bytes);
    return detail::declare_policy(std::move(made).named("interleave"), options_.failures)
        .declares(place_effect::loses, 0, detail::cannot_interleave)
        .bounded("interleave, open sources", options_.width, detail::multiplied(options_.inner_bytes, options_.width))
        .bounded(items, detail::declared_bytes<T>(items, options_.bytes));
  }

 private:
  interleave_options options_;
};

/// A stage that merges a stream of generators, or of streams: `shards | map(open) | interleave({.width = 8})`.
///
/// `width` generators are open at once. Each is pulled ahead by a task of its own, up to `ahead` items and its share of
/// `bytes`. In order (the default) one item is taken from each in turn. A generator that has ended is replaced by the
/// next from the stream, which takes over its turns: the result depends on nothing but the generators' contents. In
/// order of arrival items are taken as they come, so that a slow generator delays only itself.
///
/// A generator is dropped when it has ended. Errors: an exception of a generator is thrown after the items that it gave
/// before, in its turn, and stops all others. An exception of the stream of generators is thrown in the turn of the
/// generator that is missing (in order of arrival: when the open ones have ended). `.failures` applies to exceptions of
/// generators, and counts generators; an exception of the stream of generators always ends it. In order, items of two
/// epochs do not mix, if they carry an epoch_mark: a generator that has come to the next epoch waits until all are
/// there. A generator whose stages declare more than `.inner_bytes`, if that is stated, is a configuration_error in
/// its turn. Dropping the stage drops everything. Throws configuration_error if `.width` or `.ahead` is 0.
inline interleave_stage interleave(interleave_options options = {}) { return interleave_stage(options); }

/// See merge().
struct merge_options {
  std::size_t ahead = 1;         ///< items of each source pulled and not yet taken
  std::size_t bytes = 64 * MiB;  ///< of all those items together, for types with byte_size()
};

/// A stream of the items of all sources, in the order in which they get ready: `merge(std::move(sources))`. The order
/// differs from run to run; interleave() takes turns instead.
///
/// Every source is pulled ahead by a task of its own. An exception of one of them is thrown after the items that came
/// before, and stops the others. A source is dropped when it has ended. Throws configuration_error if .ahead is 0.
template <class Source>
  requires detail::is_source_v<Source>
stream<typename Source::value_type> merge(std::vector<Source>&& sources, merge_options options = {}) {
  using T = typename Source::value_type;
  const std::size_t width = sources.empty() ? 1 : sources.size();
  const std::size_t items = detail::multiplied(width, options.ahead);
  const interleave_options how{.width = width, .order = order::arrival, .ahead = options.ahead};
  if (options.ahead == 0) throw configuration_error("merge: .ahead must not be 0");
  detail::stream_description all;
  async_generator<async_generator<T>> opened = from_range(detail::all_joined(all, std::move(sources))).generator();
  stream<T> made(
      detail::interleaved_as_they_come<async_generator<T>>(std::move(opened), how, options.bytes / width));
  return detail::stream_access::continued(
      std::move(all),
      std::move(made)
                            .named("merge")
                            .declares(place_effect::loses, 0, detail::cannot_mix)
                            .bounded(items, detail::declared_bytes<T>(items, options.bytes)));
}
template <class First, class... More>
  requires detail::alike_sources<First, More...>
stream<typename First::value_type> merge(First&& first, More&&... more) {
  return merge(detail::in_a_vector(std::move(first), std::move(more)...));
}
/// For the compiler's message: anything else.
template <class First, class... More>
  requires(detail::is_source_v<std::remove_cvref_t<First>> && !detail::alike_sources<First, More...>)
detail::refused merge(First&&, More&&...) {
  detail::explain_sources<First, More...>();
  return detail::refused();
}
template <class Source>
  requires detail::is_source_v<Source>
detail::refused merge(const std::vector<Source>&, const merge_options& = {}) {
  static_assert(detail::never_v<Source>, "merge consumes its sources: write merge(std::move(sources))");
  return detail::refused();
}

}  // namespace millrace
