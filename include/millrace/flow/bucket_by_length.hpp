// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/length_edges.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/flow/detail/places.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/pipe.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See bucket_by_length(). At least one of batch and max_tokens is given.
struct bucket_options {
  std::size_t batch = 0;       ///< most items of a batch; 0: as many as max_tokens allows
  std::size_t max_tokens = 0;  ///< most of items times the longest of them, as padding makes it; 0: any
  std::size_t window = 0;      ///< items that are sorted together, a multiple of batch; 0: 32 batches, or 1024 items
  length_edges edges = {};     ///< no batch has items of two buckets; none: whatever is next to each other
  std::size_t bytes = 0;       ///< most bytes of a window, for run_options::budget: declared, not measured
  std::uint64_t seed = 0;      ///< for the order of batches; 0: that of the training, if items have marks
};

namespace detail {

/// The items of one batch, by their numbers in the window.
using item_numbers = std::vector<std::size_t>;

/// Throws configuration_error for options that contradict each other; fills in the window.
bucket_options checked(bucket_options options);
/// Identifies these options in a state.
std::uint32_t window_id(const bucket_options& options) noexcept;
/// How a window of items of these lengths is cut into batches, in the order in which they are yielded.
std::vector<item_numbers> cut_into_buckets(const std::vector<std::size_t>& lengths, const bucket_options& options,
                                     std::uint64_t seed, std::uint64_t epoch, std::uint64_t begin);
/// Throws configuration_error: a state says that more batches of this window were taken than it has.
[[noreturn]] void refuse_window(std::size_t taken, std::size_t batches);

/// Logs that an item is a batch alone.
void say_longer(const coroutine_context& here, std::size_t length, std::size_t most, const where& at);

/// Items in their order, until a window is full, or the epoch has ended.
template <class T>
class length_window {
 public:
  void add(T item, std::size_t length, const epoch_mark& mark) {
    if (items.empty()) first = mark;
    items.emplace_back(std::move(item));
    lengths.push_back(length);
    last.join(mark);
  }
  bool full(const bucket_options& options) const noexcept { return items.size() == options.window || last.last; }

  std::vector<T> items;
  std::vector<std::size_t> lengths;
  epoch_mark first, last;
};

template <class T, class Length>
std::size_t measured(Length& length_of, const T& item) {
  try {
    return static_cast<std::size_t>(length_of(item));
  } catch (...) {
    item_place place;
    place.note(item);
    std::rethrow_exception(place.completed());
  }
}

template <class T, class Length>
async_generator<marked_batch<T>> bucket_items(async_generator<T> source, Length length_of, bucket_options options) {
  const coroutine_context here = co_await this_context();
  compactor<T> kept;
  bool said = false;                    // that an item is longer than max_tokens
  length_window<T> next;                // being filled
  std::optional<length_window<T>> now;  // being yielded
  std::vector<item_numbers> batches;          // of `now`
  std::size_t given = 0;                // of those
  std::optional<T> held;                // of another epoch than `next`
  std::uint64_t windows = 0;
  bool aligned = true;  // the window begins where all ranks stood together
  bool ended = false;
  // Fills the next window, by so many items at most.
  for (;;) {
    // The first window is filled at once; while one is yielded, the next one grows by as many items.
    std::size_t pulls = now ? batches[given].size() : options.window;
    while (!ended && pulls-- != 0 && !next.full(options)) {
      std::optional<T> item = std::exchange(held, std::nullopt);
      if (!item) item = co_await source.next();
      if (!item) {
        ended = true;
        break;
      }
      const epoch_mark mark = detail::mark_of_item(*item);
      if (!next.items.empty() && mark.known && next.last.known && mark.epoch != next.last.epoch) {
        next.last.last = true;  // cut short by the next item
        held = std::move(item);
        break;
      }
      kept(*item);
      const std::size_t length = mark.padding ? 0 : detail::measured(length_of, std::as_const(*item));
      if (options.max_tokens != 0 && length > options.max_tokens && !std::exchange(said, true)) {
        item_place place;
        place.note(*item);
        say_longer(here, length, options.max_tokens, place.at());
      }
      next.add(std::move(*item), length, mark);
    }
    if (!now) {
      if (next.items.empty()) co_return;
      if (!next.full(options) && !ended) continue;
      now.emplace(std::exchange(next, length_window<T>()));
      const epoch_mark& first = now->first;
      const std::uint64_t seed = options.seed != 0 ? options.seed : first.seed;
      batches = cut_into_buckets(now->lengths, options, seed, first.epoch, first.known ? first.from : windows);
      ++windows;
      given = first.part.taken;  // before a resume
      if (given != 0 && given >= batches.size()) refuse_window(given, batches.size());
    }
    epoch_mark mark = now->last;
    if (mark.known && given + 1 != batches.size()) {
      mark = now->first;
      mark.whole = aligned && mark.from < mark.next;  // not after the epoch's last sample
      mark.position = mark.next = mark.from;
      mark.last = mark.padding = false;
      mark.disordered = now->last.disordered;
      mark.part.stage = window_id(options);
      mark.part.taken = static_cast<std::uint32_t>(given + 1);
      mark.part.of_rank = false;
    }
    mark.steps = 0;  // batches of other sizes than those of a step
    std::vector<T> items;
    items.reserve(batches[given].size());
    for (const std::size_t i : batches[given]) items.push_back(std::move(now->items[i]));
    marked_batch<T> out(std::move(items), mark);
    const bool emptied = ++given == batches.size();
    if (emptied) {
      aligned = now->last.whole;
      now.reset();
    }
    co_yield give(out);
  }
}

}  // namespace detail

/// Returned by bucket_by_length().
template <class Length>
class bucket_stage : public detail::library_stage {
 public:
  bucket_stage(Length length_of, const bucket_options& options)
      : length_of_(std::move(length_of)), options_(detail::checked(options)) {}

  template <class T>
  stream<marked_batch<T>> operator()(async_generator<T> source) && {
    if constexpr (!std::is_invocable_r_v<std::size_t, const Length&, const T&>) {
      static_assert(detail::never_v<T>,
                    "bucket_by_length calls length_of(item): it must take a const item& and return "
                    "a whole number");
      return {};
    } else {
      stream<marked_batch<T>> made =
          stream<marked_batch<T>>(
              detail::bucket_items<T, Length>(std::move(source), std::move(length_of_), options_))
              .named("bucket_by_length");
      if (options_.max_tokens != 0 || options_.edges.size() != 0) {
        made = std::move(made).declares(place_effect::unequal, 1, detail::cannot_count_split);
      }
      return std::move(made)
          .bounded(detail::multiplied(2, options_.window), options_.bytes)
          .windowed(detail::window_id(options_));
    }
  }

 private:
  Length length_of_;
  bucket_options options_;
};

/// A stage that makes batches of items of similar length, to reduce padding:
///
///     clips | bucket_by_length([](const clip& c) { return c.waves.size(); }, {.batch = 32}) | to_device(copies)
///
/// Each `window` of consecutive items is sorted by length and cut into batches, which are yielded in random order. The
/// order is a pure function of the seed, the epoch, the options and the items and their lengths. A batch ends when it
/// is full (`batch`), when one item more would make it larger than max_tokens, and at an edge; an item longer than
/// max_tokens is a batch alone, and the first one a line in the log. With `batch` alone, and as many items in every
/// epoch on every rank, as epochs() makes them, ranks have equally many batches, and at the same step batches of about
/// the same length; with max_tokens or edges they do not (equal_batches). Padding of an epoch has length 0.
///
/// A window is of one epoch, if items have marks (mark_of()). pipeline_run::state() can be taken after every batch:
/// inside a window it has the position where the window begins, and how many of its batches were taken. A resume reads
/// that window again, and continues with the very next batch; it must have the same options here and, inside a window,
/// the same number of ranks and epochs_options::batch.
///
/// Concurrency: none; the next window is filled while this one is yielded, item for item. Bound: two
/// windows. The first batch comes when the first window is full. Items are compacted as buffer() does. An exception of
/// the source or of length_of ends the stream and drops both windows. Throws configuration_error without .batch and
/// .max_tokens, and for a window that is no multiple of .batch.
template <class Length>
bucket_stage<Length> bucket_by_length(Length length_of, const bucket_options& options) {
  return bucket_stage<Length>(std::move(length_of), options);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/flow/bucket_by_length.ipp>
#endif
