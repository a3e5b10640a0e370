// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>  // for std::begin() and iter_value_t: <iterator> brings <streambuf> with it
#include <type_traits>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/item.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/flow/detail/places.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// For stages that get generators while they run: throws configuration_error if the stages of `inner` declare more
/// than `stated` bytes together, or nothing that could be compared. 0: nothing was stated, so no budget counts on it.
template <class T>
void check_inner_bounds(const stream<T>& inner, std::size_t stated, const char* stage) {
  if (stated == 0) return;
  std::size_t left = stated;
  for (const stage_bounds& b : inner.bounds()) {
    if ((b.bytes == 0 && b.items > 0) || b.bytes > left) {
      throw configuration_error(std::string(stage) + ": the pipeline that it was given " +
                                (b.bytes == 0 ? std::string("states no bound in bytes for its stage ") + b.name
                                              : std::string("may hold more than .inner_bytes, which is ") +
                                                    std::to_string(stated) + " (up to its stage " + b.name + ')'));
    }
    left -= b.bytes;
  }
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// See flat_map().
struct flat_map_options {
  /// Bytes that the stages of one generator that the function returns may declare to hold, for run_options::budget:
  /// more is an error when it is opened. 0: not stated. Not for functions that return ranges.
  std::size_t inner_bytes = 0;
};

namespace detail {

template <class R>
concept plain_range = requires(R& r) {
  std::begin(r) != std::end(r);
  ++std::declval<decltype(std::begin(r))&>();
};

template <class R>
struct elements {};
template <class R>
  requires is_source_v<R>
struct elements<R> {
  using type = typename R::value_type;
};
template <class R>
  requires plain_range<R>
struct elements<R> {
  using type = std::iter_value_t<decltype(std::begin(std::declval<R&>()))>;
};
/// The items of a generator or of a range.
template <class R>
using element_t = typename elements<R>::type;

/// held_part::stage of the items that flat_map() makes.
inline constexpr std::uint32_t flat_map_window = 0x666c6174;

/// The marks of the items that are made of samples: with one rank how many of the sample came, with several how many of
/// the rank's share of a step. If a later stage counts (stream::counting()), they say only which item is the last of
/// its sample, and no state is after another one.
class expanded_marks {
 public:
  explicit expanded_marks(std::shared_ptr<bool> counted_later) : counted_later_(std::move(counted_later)) {}

  void begin(const epoch_mark& sample) {
    sample_ = sample;
    if (*counted_later_) return;
    if (!began_ || sample.epoch != step_.epoch || sample.from != step_.from) {
      check();
      began_ = true;
      step_ = sample;
      made_ = 0;
      left_out_ = sample.part.taken;
    }
  }
  /// The mark of one more item, the sample's last or not; nothing if it came before a resume.
  std::optional<epoch_mark> next(bool last) {
    if (!*counted_later_) ++made_;
    if (left_out_ != 0) {
      --left_out_;
      return std::nullopt;
    }
    epoch_mark mark = sample_;
    mark.part.stage = sample_.part.stage + flat_map_window;
    mark.part.of_rank = true;
    if (*counted_later_) {
      sample_.part.taken = 0;  // the first item has told it
      mark.whole = mark.whole && last;
      mark.last = mark.last && last;
      return mark;
    }
    mark.part.taken = 0;
    if (last && sample_.whole) return mark;
    mark.position = mark.next = sample_.from;
    mark.part.taken = made_;
    mark.whole = true;
    mark.last = mark.last && last;
    return mark;
  }
  /// At the end of a step: the state was right about it.
  void check() const {
    if (left_out_ == 0) return;
    throw configuration_error("resume: the state has taken " + std::to_string(step_.part.taken) +
                              " items of flat_map() where there are " + std::to_string(made_));
  }

 private:
  std::shared_ptr<bool> counted_later_;
  epoch_mark step_, sample_;
  bool began_ = false;
  std::uint32_t made_ = 0;      // of the step
  std::uint32_t left_out_ = 0;  // of the step's items that are still to come
};

/// Numbers the items that are made of one place.
template <class T, class U>
class copy_numbers {
 public:
  static constexpr bool known = shows_origin<T> && shows_origin<U>;

  void begin(const T& item) {
    if constexpr (known) of_ = item.from;
    made_ = 0;
  }
  void number(U& made) {
    if constexpr (known) {
      origin& at = made.from;
      const bool same = at.from == of_.from && at.offset == of_.offset && at.ordinal == of_.ordinal &&
                        at.copy == of_.copy && at.from != nullptr;
      if (same && made_ != 0) at.copy = at.copy * 0x9e3779b1U + made_;
      ++made_;
    }
  }

 private:
  origin of_;
  std::uint32_t made_ = 0;
};

/// The items of epochs(): each knows whether it is the last of its sample, so one is made ahead. A sample of which
/// nothing is made, and an empty entry, is one empty entry.
template <class U, class T, class F>
async_generator<U> expand_items(async_generator<T> source, F f, flat_map_options options,
                                std::shared_ptr<bool> counted_later) {
  item_place place;
  expanded_marks marks(std::move(counted_later));
  copy_numbers<T, U> copies;
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) break;
    const epoch_mark sample = detail::mark_of_item(*item);
    const bool placed = sample.known && sample.next != 0;
    if (placed) marks.begin(sample);
    std::optional<U> held;  // the latest one
    if (!sample.padding) {
      place.note(*item);
      copies.begin(*item);
      // Like flat_map_items().
      try {
        if constexpr (is_source_v<call_result_t<F&, T>>) {
          stream<U> inner = detail::call(f, std::move(*item));
          check_inner_bounds(inner, options.inner_bytes, "flat_map");
          for (;;) {
            std::optional<U> element = co_await inner.next();
            if (!element) break;
            copies.number(*element);
            if (held) {
              const std::optional<epoch_mark> mark = placed ? marks.next(false) : detail::mark_of_item(*held);
              if (mark) {
                detail::set_item_mark(*held, *mark);
                co_yield give(*held);
              }
              held.reset();
            }
            held.emplace(std::move(*element));
          }
        } else {
          using range_type = std::invoke_result_t<F&, T>;  // may be a reference
          range_type range = detail::call(f, std::move(*item));
          for (auto&& element : range) {
            if (held) {
              const std::optional<epoch_mark> mark = placed ? marks.next(false) : detail::mark_of_item(*held);
              if (mark) {
                detail::set_item_mark(*held, *mark);
                co_yield give(*held);
              }
              held.reset();
            }
            if constexpr (std::is_lvalue_reference_v<range_type>) {
              held.emplace(std::as_const(element));
            } else {
              held.emplace(std::move(element));
            }
            copies.number(*held);
          }
        }
      } catch (...) {
        std::rethrow_exception(place.completed());
      }
    }
    item.reset();
    if (!held && !sample.placed()) continue;
    const std::optional<epoch_mark> mark = placed ? marks.next(true) : held ? detail::mark_of_item(*held) : sample;
    if (!mark) continue;
    if (!held) {
      U empty = detail::empty_entry<U>(*mark);
      co_yield give(empty);
      continue;
    }
    detail::set_item_mark(*held, *mark);
    co_yield give(*held);
  }
  marks.check();
}

template <class U, class T, class F>
async_generator<U> flat_map_items(async_generator<T> source, F f, flat_map_options options) {
  item_place place;
  copy_numbers<T, U> copies;
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) co_return;
    if (detail::is_empty_entry(*item)) continue;  // nothing is made of it, and U has no place to keep
    place.note(*item);
    copies.begin(*item);
    // The item lives until everything made of it has been yielded: the result of f may refer to it. Errors on the way
    // are errors about it. (Nothing is awaited or yielded where they are caught.)
    try {
      if constexpr (is_source_v<call_result_t<F&, T>>) {
        stream<U> inner = detail::call(f, std::move(*item));
        check_inner_bounds(inner, options.inner_bytes, "flat_map");
        for (;;) {
          std::optional<U> element = co_await inner.next();
          if (!element) break;
          copies.number(*element);
          co_yield give(*element);
        }
      } else {
        using range_type = std::invoke_result_t<F&, T>;  // may be a reference
        range_type range = detail::call(f, std::move(*item));
        for (auto&& element : range) {
          if constexpr (std::is_lvalue_reference_v<range_type>) {
            U copy(std::as_const(element));
            copies.number(copy);
            co_yield give(copy);
          } else {
            U moved(std::move(element));
            copies.number(moved);
            co_yield give(moved);
          }
        }
      }
    } catch (...) {
      std::rethrow_exception(place.completed());
    }
  }
}

template <class F, class T>
concept flat_maps = callable_with<F, T> && requires { typename element_t<call_result_t<F, T>>; };

}  // namespace detail

/// Returned by flat_map().
template <class F>
class flat_map_stage : public detail::library_stage {
 public:
  flat_map_stage(F f, flat_map_options options) : f_(std::move(f)), options_(options) {}

  /// For the compiler's message: why it does not take items of type T.
  template <class T>
  static constexpr void explain() {
    detail::explain_call<F&, T>();
    static_assert(
        !detail::callable_with<F&, T> || detail::flat_maps<F&, T>,
        "the function given to flat_map must return a range or an async_generator: map(f) makes one item of one");
  }

  template <class T>
    requires detail::flat_maps<F&, T>
  auto operator()(async_generator<T> source) && {
    using element = detail::element_t<detail::call_result_t<F&, T>>;
    constexpr bool expands = detail::marked_item<T> && detail::can_be_empty<element>;
    stream<element> made;
    if constexpr (expands) {
      auto counted_later = std::make_shared<bool>(false);
      made = stream<element>(
                 detail::expand_items<element, T, F>(std::move(source), std::move(f_), options_, counted_later))
                 .named("flat_map")
                 .declares(place_effect::unequal, 0, detail::cannot_count_expanded)
                 .counting(detail::flat_map_window, std::move(counted_later));
    } else {
      made = stream<element>(detail::flat_map_items<element, T, F>(std::move(source), std::move(f_), options_))
                 .named("flat_map");
      if constexpr (detail::marked_item<T>) {
        made = std::move(made).declares(place_effect::loses, 0, detail::cannot_make_empty);
      }
    }
    if constexpr (detail::is_source_v<detail::call_result_t<F&, T>>) {
      return std::move(made).bounded("flat_map, open pipeline", 1, options_.inner_bytes);
    } else {
      return made;
    }
  }

 private:
  F f_;
  flat_map_options options_;
};

/// A stage that yields everything that `f(item)` holds or yields, one item after another: `shards | flat_map(open)`.
///
/// `f` returns a generator, a stream or a range (a container by value is moved from, one by lvalue reference is
/// copied). One inner generator is open at a time; it is dropped before the next item is asked for. The item lives as
/// long as the result of `f`. An exception of `f` or an inner generator ends the stream, as does one whose stages
/// declare to hold more than `.inner_bytes` (a configuration_error), if that is stated.
///
/// The stage marks the items that `f` makes of a sample of epochs(), or of an item with a mark: a state says how many
/// of them were taken, and a resume calls `f` again and continues with the next one. So `f` must make the same items
/// again; one is made ahead. If flat_map() or pack() comes after it, that stage counts, and all items of a step are
/// made again. An empty entry, and a sample of which `f` makes nothing, become an empty entry. With several ranks each
/// has a state of its own, and equal_batches::fill() after this stage gives them equally many batches; without it run()
/// refuses the pipeline, and an item of a type that cannot be an empty entry (see data/item.hpp). Items that `f` makes
/// with their sample's `from` have random numbers of their own (origin::copy).
template <class F>
flat_map_stage<F> flat_map(F f, flat_map_options options = {}) {
  return flat_map_stage<F>(std::move(f), options);
}

}  // namespace millrace
