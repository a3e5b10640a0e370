// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/item.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/stream.hpp>

// How stages keep the places that epochs() gives its samples.

namespace millrace::inline MILLRACE_ABI::detail {

/// Ends of sentences that begin with a stage's name: see stream::declares().
inline constexpr const char* cannot_make_empty =
    "its function returns a type that cannot stand for an empty entry, which epochs() and filter() yield in place of "
    "samples that are left out: return a type with a default constructor, mark_of() and a member `mark` or set_mark(), "
    "give the function a member in_place_of(mark), or put the stage after batch()";
inline constexpr const char* cannot_leave_out =
    "it leaves out items of a type that cannot stand for an empty entry, so ranks would have unequally many batches: "
    "put it where items have mark_of() and a member `mark` or set_mark(), before batches are made";

inline constexpr const char* cannot_reorder =
    "it changes the order of items whose place cannot be changed, so the epoch would seem to end in its middle: put it "
    "where items have mark_of() and a member `mark` or set_mark() (samples, or vectors of them), or use order::ordered";
inline constexpr const char* cannot_end_alone =
    "on_failure::stop is for one rank: the others would continue without it, and wait for ever in a step. Say "
    "on_failure::skip, which keeps the sample's place, or on_failure::rethrow, or .uneven where no rank waits";

inline constexpr const char* cannot_mix =
    "items of several sources have no common places, so there would be no equal batches and no state: mix the "
    "datasets, epochs(dataset({{web, 3}, {books, 1}}), ...), or give each epochs() a run of its own";
inline constexpr const char* cannot_zip =
    "a tuple has no place, so there would be no equal batches and no state: get what belongs to a sample in map(), "
    "which keeps its place, or give each epochs() a run of its own";
inline constexpr const char* cannot_interleave =
    "what is opened of several samples in turn has no places, so there would be no equal batches and no state: open "
    "one after the other by flat_map(), which counts a sample's items";

inline constexpr const char* cannot_count_split =
    "with .max_tokens or .edges ranks have unequally many batches: use .batch alone, or equal_batches, with its fill() "
    "before this stage";
inline constexpr const char* cannot_count_expanded =
    "ranks would have unequally many batches: give epochs() .equal, and put its fill() after this stage, before "
    "batches are made (see equal_batches), or say .uneven where no rank waits for another";

/// Whole sentences: why there is no state.
inline constexpr const char* no_state_reordered =
    "state(): a stage after epochs() changes the order of the samples (shuffle(), order::arrival), so there is none: "
    "leave it out, as epochs() shuffles, or use order::ordered";
inline constexpr const char* no_state_recounted =
    "state(): take() after epochs() would count anew after a resume, so there is none: use stop_after() of the run, "
    "epochs_options::take_batches or .epochs, or dataset::take()";

/// Of the program's functions from T: what stands for an empty entry. configuration_error where nothing can.
template <class U, class F>
U entry_in_place(const F& f, [[maybe_unused]] epoch_mark mark, const char* stage) {
  if constexpr (has_in_place_of<F, U>) {
    mark.padding = true;
    return f.in_place_of(mark);
  } else if constexpr (can_be_empty<U>) {
    mark.padding = true;
    return detail::empty_entry<U>(mark);
  } else {
    throw configuration_error(std::string(stage) + ": " + cannot_make_empty);
  }
}
template <class U, class F>
inline constexpr bool has_entry_in_place = has_in_place_of<F, U> || can_be_empty<U>;

/// Declares the effect of a failure policy on the ranks.
template <class U>
stream<U> declare_policy(stream<U> made, const failure_policy& policy) {
  if (policy.then != on_failure::stop) return made;
  return std::move(made).declares(place_effect::ends_alone, 0, cannot_end_alone);
}

/// Declares that a stage yields items of type U in another order than theirs.
template <class U>
stream<U> declare_reordered(stream<U> made) {
  if constexpr (has_mark_v<U> && !moves_place_v<U>) {
    return std::move(made).declares(place_effect::loses, 0, cannot_reorder);
  } else {
    return std::move(made).declares(place_effect::stateless, 1, no_state_reordered);
  }
}

/// Declares the effect on places of a stage that calls F for items of type T.
template <class T, class F, class U>
stream<U> declare_mapped(stream<U> made, const failure_policy& policy) {
  const bool skips = policy.then == on_failure::skip;  // it may leave items out
  made = detail::declare_policy(std::move(made), policy);
  if constexpr (marked_item<T>) {
    if constexpr (has_in_place_of<F, U> || can_be_empty<U>) {
      if (skips) made = std::move(made).declares(place_effect::makes_empty);
    } else if constexpr (std::is_same_v<T, U>) {
      if (skips) made = std::move(made).declares(place_effect::loses, 0, cannot_make_empty);
    } else {
      made = std::move(made).declares(skips ? place_effect::loses : place_effect::needs_items, 0, cannot_make_empty);
    }
  } else if (skips) {
    made = std::move(made).declares(place_effect::loses, 0, cannot_leave_out);
  }
  return made;
}

}  // namespace millrace::detail
