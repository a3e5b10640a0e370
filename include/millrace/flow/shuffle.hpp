// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/flow/detail/places.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/flow/pipe.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See shuffle().
struct shuffle_options {
  std::size_t window = 4096;      ///< items held
  std::size_t bytes = 512 * MiB;  ///< of those items, for types with byte_size()
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;  ///< another order for every epoch
  double startup = 0.1;     ///< share of the window, in items or bytes, that is filled before the first item is yielded
};

namespace detail {

inline std::size_t share_of(std::size_t whole, double share) noexcept {
  return share < 1 ? static_cast<std::size_t>(share * static_cast<double>(whole)) : whole;
}

template <class T>
async_generator<T> shuffle_items(async_generator<T> source, shuffle_options options) {
  rng random(options.seed, options.epoch, purpose::shuffle);
  window held(options.window, options.bytes);
  const std::size_t first_items = share_of(options.window, options.startup);
  const std::size_t first_bytes = share_of(options.bytes, options.startup);
  std::vector<std::optional<T>> items;  // slots, so that items need not be assignable
  std::optional<T> waiting;  // the first item of another epoch, until the window is empty
  std::optional<std::uint64_t> epoch;
  places_in_turn places;
  bool ended = false;
  bool started_up = false;
  for (;;) {
    // Before the first item the start-up share is pulled, before every other one at most two items.
    for (int pulls = 0; !ended && !waiting && held.room(); ++pulls) {
      if (started_up ? pulls == 2 : !items.empty() && (items.size() >= first_items || held.bytes() >= first_bytes))
        break;
      std::optional<T> item = co_await source.next();
      if (!item) {
        ended = true;
        source = async_generator<T>();
        break;
      }
      if constexpr (has_mark_v<T>) {
        const epoch_mark mark = detail::mark_of_item(*item);
        if constexpr (moves_place_v<T>) places.came(mark);
        if (mark.known && epoch != mark.epoch) {
          epoch = mark.epoch;
          if (!items.empty()) {
            waiting.emplace(std::move(*item));
            break;
          }
          if (options.seed == 0) options.seed = mark.seed;
          random = rng(options.seed, mark.epoch, purpose::shuffle);
        }
      }
      items.emplace_back(std::in_place, compacted(std::move(*item)));
      held.add(item_bytes(*items.back()));
    }
    started_up = true;
    if (items.empty()) {
      if (!waiting) co_return;
      random = rng(options.seed, *epoch, purpose::shuffle);
      items.emplace_back(std::in_place, compacted(std::move(*waiting)));
      waiting.reset();
      held.add(item_bytes(*items.back()));
      started_up = false;
      continue;
    }

    const auto chosen = static_cast<std::size_t>(random.below(items.size()));
    std::optional<T> leaving(std::move(items[chosen]));
    if (chosen + 1 != items.size()) {
      items[chosen].reset();
      items[chosen].emplace(std::move(*items.back()));
    }
    items.pop_back();
    held.remove(item_bytes(*leaving));
    if constexpr (moves_place_v<T>) {
      if (detail::mark_of_item(*leaving).placed()) detail::move_to_place(*leaving, places.next());
    }
    co_yield give(*leaving);
  }
}

}  // namespace detail

/// Returned by shuffle().
class shuffle_stage : public detail::library_stage {
 public:
  explicit shuffle_stage(const shuffle_options& options) : options_(options) {
    if (options.window == 0) detail::misconfigured("shuffle: .window must not be 0");
    if (!(options.startup >= 0 && options.startup <= 1)) {
      detail::misconfigured("shuffle: .startup is a share, from 0 to 1");
    }
  }

  template <class T>
  stream<T> operator()(async_generator<T> source) && {
    return detail::declare_reordered(items(std::move(source)).named("shuffle"))
        .bounded(options_.window, detail::declared_bytes<T>(options_.window, options_.bytes));
  }

 private:
  template <class T>
  stream<T> items(async_generator<T> source) {
    if constexpr (requires { shuffle_parts(std::move(source), options_); }) {
      return shuffle_parts(std::move(source), options_);
    } else {
      return stream<T>(detail::shuffle_items<T>(std::move(source), options_));
    }
  }

  shuffle_options options_;
};

/// A stage that yields the items in random order: each is drawn from a window of items that were pulled before.
///
/// The order is a pure function of the seed, the epoch, the options and the items' order and sizes, whatever the
/// timing, the machine and the compiler. The rule: the window is filled up to the `startup` share of `window` items or
/// of `bytes`, whichever comes first; from then on each item is drawn uniformly from the window (rng::below over its
/// slots; the last slot moves to the empty one), after up to two items have been pulled, as far as there is room. So a
/// big window does not delay the first batch, and it grows by one with every item until it is full. At the end of the
/// source the window is emptied.
///
/// After lines() the window holds single lines, and makes new batches of them, as long as the batches that came.
///
/// If items have marks (mark_of()), the window never holds items of two epochs: it is emptied before another epoch
/// begins, whose number replaces options.epoch, and the training's seed replaces options.seed if that is 0. The marks
/// keep their order: the k-th item of an epoch has the place of the k-th one that came, so that batches end with the
/// epoch. run() refuses, after epochs(), items with a mark that cannot be set (see data/item.hpp).
///
/// Items that stay are compacted, if their type has a function `compact_slices(item)` (see data/item.hpp), so that a
/// small slice does not hold a slab. The bound in bytes is exceeded only by an item larger than every one before it.
/// Nothing is pulled ahead of the consumer: next() waits for the pulls. Errors of the source are thrown at once, and
/// the window's items are dropped with the stream. Throws configuration_error if `window` is 0 or `startup` is not
/// between 0 and 1.
inline shuffle_stage shuffle(shuffle_options options = {}) { return shuffle_stage(options); }

}  // namespace millrace
