// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <type_traits>
#include <vector>

#include <millrace/data/item.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The progress of a stage through samples that it has yielded in part: of a window (bucket_by_length()), a sample
/// (flat_map()) or a document (pack()).
class held_part {
 public:
  std::uint32_t stage = 0;  ///< which stage, with which options, counts; of several their sum; 0: none
  /// In units of the stage's own: batches, items, tokens. On the first sample after a resume: the number yielded
  /// before.
  std::uint32_t taken = 0;
  bool of_rank = false;  ///< it counts this rank's share of a step: each rank has a state of its own

  /// True if a stage counts at all.
  explicit operator bool() const noexcept { return stage != 0; }
  friend bool operator==(const held_part&, const held_part&) = default;
};

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
  held_part part;              ///< of the samples from `next` on
  bool known = false;
  bool whole = false;       ///< the last of its rank's share of a step; with one rank every sample is
  bool last = false;        ///< of this rank's epoch
  /// An empty entry, of weight 0: it pads the epoch's last batch, or has the position of a sample that could not be
  /// read or was left out. Several items are padding if all are.
  bool padding = false;
  bool disordered = false;  ///< a stage has changed the order: the entries before it are other samples
  bool counted = false;     ///< all ranks take steps of equal size, of which this is an entry: equal_batches::fill()
  std::uint32_t steps = 0;  ///< of those, how many of the epoch end with this entry or before; 0: not known

  /// True if its position is taken by no other item, in the canonical order of an index or in a step of equal_batches:
  /// then batches keep their sizes, even if samples are left out.
  bool placed() const noexcept { return known && (next != 0 || counted || part); }

  /// Becomes the mark of all up to `later`.
  void join(const epoch_mark& later) noexcept {
    if (!later.known) return;
    const bool back = known && (later.epoch != epoch ? later.epoch < epoch : later.position < position);
    const bool was_disordered = disordered;
    const bool empty = later.padding && (padding || !known);
    if (!back) *this = later;
    padding = empty;
    disordered = was_disordered || later.disordered || back;
  }

  friend bool operator==(const epoch_mark&, const epoch_mark&) = default;
};

/// How far a training is, for its progress.
class training_place {
 public:
  std::uint64_t epoch = 0;    ///< of the item that was taken last; the first one is 0
  std::uint64_t epochs = 0;   ///< of the training; 0: endless, or not known
  std::uint64_t batch = 0;    ///< how many of the epoch's batches were taken, those before a resume included
  std::uint64_t batches = 0;  ///< of an epoch, on this rank; 0: not known

  /// Batches taken in the whole training, and all of its batches, as far as they are known; 0: not known.
  std::uint64_t taken() const noexcept { return epoch * batches + batch; }
  std::uint64_t all() const noexcept { return epochs * batches; }
};

namespace detail {

/// True if mark_of_item() can read marks of items of type T.
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
/// The mark of a batch as batch() makes it.
template <class T, class A>
epoch_mark mark_of_item(const std::vector<T, A>& items) {
  epoch_mark all;
  if constexpr (has_mark_v<T>) {
    for (const T& item : items) all.join(detail::mark_of_item(item));
  }
  return all;
}

/// True if functions of the program must not get the item.
template <class T>
bool is_empty_entry(const T& item) {
  if constexpr (marked_item<T>) {
    return detail::mark_of_item(item).padding;
  } else {
    return false;
  }
}
template <class T>
  requires(has_set_mark<T> || shows_mark<T>)
void set_item_mark(T& item, const epoch_mark& mark) {
  if constexpr (has_set_mark<T>) {
    set_mark(item, mark);
  } else {
    item.mark = mark;
  }
}
/// An empty entry in the place that `mark` says.
template <class T>
  requires can_be_empty<T>
T empty_entry(epoch_mark mark) {
  T empty{};
  mark.padding = true;
  detail::set_item_mark(empty, mark);
  return empty;
}

/// Makes an item, or all of a batch, empty entries in the same places; false if it has no places, or cannot.
template <class T>
bool leave_out(T& item) {
  if constexpr (can_set_mark<T>) {
    epoch_mark mark = detail::mark_of_item(item);
    if (!mark.placed()) return false;
    mark.padding = true;
    if constexpr (std::is_default_constructible_v<T> && std::is_move_assignable_v<T>) item = T{};
    detail::set_item_mark(item, mark);
    return true;
  } else {
    return false;
  }
}
template <class T, class A>
bool leave_out(std::vector<T, A>& items) {
  bool all = !items.empty();
  for (T& item : items) all = detail::leave_out(item) && all;
  return all;
}
/// True if leave_out() works for items of type T.
template <class T>
inline constexpr bool keeps_place_v = can_set_mark<T>;
template <class T, class A>
inline constexpr bool keeps_place_v<std::vector<T, A>> = keeps_place_v<T>;

/// Puts an item, or all of a batch, in another place of the order. Padding stays padding.
template <class T>
void move_to_place(T& item, epoch_mark place) {
  place.padding = detail::mark_of_item(item).padding;
  place.disordered = true;
  detail::set_item_mark(item, place);
}
template <class T, class A>
void move_to_place(std::vector<T, A>& items, const epoch_mark& place) {
  for (T& item : items) detail::move_to_place(item, place);
}
/// True if move_to_place() can.
template <class T>
inline constexpr bool moves_place_v = has_mark<T> && (has_set_mark<T> || shows_mark<T>);
template <class T, class A>
inline constexpr bool moves_place_v<std::vector<T, A>> = moves_place_v<T>;

/// The places of items whose order a stage changes. They are given away in the order in which they came, each to the
/// item that is yielded then: batches end where the epoch does, whichever item comes last.
class places_in_turn {
 public:
  void came(const epoch_mark& mark) {
    if (mark.placed()) places_.push_back(mark);
  }
  /// The next one; for each that came.
  epoch_mark next() {
    const epoch_mark first = places_.front();
    places_.pop_front();
    return first;
  }

 private:
  std::deque<epoch_mark> places_;
};

}  // namespace detail
}  // namespace millrace
