// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include <millrace/data/item.hpp>

namespace millrace {

/// The position of an item in a training: epochs() sets it on every sample, and a batch has the mark of its last one.
/// Empty (`known` is false) on items that do not come from epochs(). Without an index only seed and epoch are set.
///
/// Stages and runs find it by `mark_of(item)`, a function beside the item's type (see data/item.hpp). A type of your
/// own that is made of samples returns theirs; its batches then know their epoch, do not cross it, and a training
/// can be resumed after them:
///
///     mill::epoch_mark mark_of(const decoded& d) { return d.mark; }
class epoch_mark {
 public:
  std::uint64_t seed = 0;  ///< of the training
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< in the epoch's order, of all ranks; of padding: the order's end
  std::uint64_t next = 0;      ///< position of all ranks after this item; only valid if `whole`
  std::uint64_t from = 0;      ///< position of all ranks before its step
  /// How many batches of a window of bucket_by_length() were taken; the window begins at `next`. On the first sample
  /// after a resume: how many were taken before.
  std::uint32_t taken = 0;
  /// Identifies those windows; 0: not inside one. Odd: of all ranks together. Even: `taken` counts for this rank alone,
  /// tokens of its share of a step (pack()).
  std::uint32_t window = 0;
  bool known = false;
  bool whole = false;       ///< the last of its rank's share of a step; with one rank every sample is
  bool last = false;        ///< of this rank's epoch
  /// Not a sample, and of weight 0: it pads the epoch's last batch, or has the position of a sample that could not be
  /// read.
  bool padding = false;
  bool disordered = false;  ///< of several: one came after a later one
  bool counted = false;     ///< all ranks take steps of equal size, of which this is an entry: equal_batches::fill()

  /// Whether it has a position that no other item takes, in the canonical order of an index or in a step of
  /// equal_batches: then batches keep their sizes, even where samples are left out.
  bool placed() const noexcept { return known && (next != 0 || counted); }

  /// Becomes the mark of all up to `later`.
  void join(const epoch_mark& later) noexcept {
    if (!later.known) return;
    const bool back = known && (later.epoch != epoch ? later.epoch < epoch : later.position < position);
    const bool was_disordered = disordered;
    if (!back) *this = later;
    disordered = was_disordered || later.disordered || back;
  }

  friend bool operator==(const epoch_mark&, const epoch_mark&) = default;
};

namespace detail {

/// Whether mark_of_item() knows anything about items of type T.
template <class T>
inline constexpr bool has_mark_v = has_mark<T>;
template <class T, class A>
inline constexpr bool has_mark_v<std::vector<T, A>> = has_mark_v<T>;

template <class T>
epoch_mark mark_of_item(const T& item) {
  if constexpr (has_mark<T>) {
    return mark_of(item);
  } else {
    return epoch_mark();
  }
}
/// Of a batch as batch() makes it.
template <class T, class A>
epoch_mark mark_of_item(const std::vector<T, A>& items) {
  epoch_mark all;
  if constexpr (has_mark_v<T>) {
    for (const T& item : items) all.join(detail::mark_of_item(item));
  }
  return all;
}

}  // namespace detail
}  // namespace millrace
