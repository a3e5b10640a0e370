// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <string_view>  // for std::begin() and iter_value_t: <iterator> brings <streambuf> with it
#include <type_traits>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::detail {

/// For stages that get generators while they run: throws configuration_error where the stages of `inner` declare more
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

namespace millrace {

/// See flat_map().
struct flat_map_options {
  /// What the stages of one generator that the function returns may declare to hold, for run_options::budget: more is
  /// an error when it is opened. 0: not stated. Not for functions that return ranges.
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
/// What comes out of a generator or of a range.
template <class R>
using element_t = typename elements<R>::type;

template <class U, class T, class F>
async_generator<U> flat_map_items(async_generator<T> source, F f, flat_map_options options) {
  item_place place;
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) co_return;
    place.note(*item);
    // The item lives until everything made of it has been yielded: what f returns may refer to it. Errors on the way
    // are errors about it. (Nothing is awaited or yielded where they are caught.)
    try {
      if constexpr (is_source_v<call_result_t<F&, T>>) {
        stream<U> inner = detail::call(f, std::move(*item));
        check_inner_bounds(inner, options.inner_bytes, "flat_map");
        for (;;) {
          std::optional<U> element = co_await inner.next();
          if (!element) break;
          co_yield give(*element);
        }
      } else {
        using range_type = std::invoke_result_t<F&, T>;  // may be a reference
        range_type range = detail::call(f, std::move(*item));
        for (auto&& element : range) {
          if constexpr (std::is_lvalue_reference_v<range_type>) {
            U copy(std::as_const(element));
            co_yield give(copy);
          } else {
            U moved(std::move(element));
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

/// What flat_map() returns.
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
    stream<element> made =
        stream<element>(detail::flat_map_items<element, T, F>(std::move(source), std::move(f_), options_))
            .named("flat_map");
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
/// long as what `f` made of it. What `f` or an inner generator throws ends the stream, as does one whose stages declare
/// to hold more than `.inner_bytes` (a configuration_error), where that is stated.
template <class F>
flat_map_stage<F> flat_map(F f, flat_map_options options = {}) {
  return flat_map_stage<F>(std::move(f), options);
}

}  // namespace millrace
