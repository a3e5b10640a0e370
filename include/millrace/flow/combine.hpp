// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/flow/detail/places.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// For stages that consume several sources: treats each source as a pipe does. It gets a line in the stage table, and
/// its declarations are joined to those of the others. Returns the generator.
template <class T>
async_generator<T> joined(stream_description& all, stream<T> source) {
  stream_access::number(source);
  all.followed_by(stream_access::take_description(source));
  return std::move(source).generator();
}
template <class Source>
auto all_joined(stream_description& all, std::vector<Source> sources) {
  using item = typename Source::value_type;
  std::vector<async_generator<item>> generators;
  generators.reserve(sources.size());
  for (Source& source : sources) generators.push_back(joined<item>(all, std::move(source)));
  return generators;
}

/// True if they are sources, given up to be consumed, whose items are of one type.
template <class First, class... More>
concept alike_sources = is_source_v<First> && (is_source_v<More> && ...) &&
                        (std::is_same_v<typename First::value_type, typename More::value_type> && ...);

template <class First, class... More>
auto in_a_vector(First&& first, More&&... more) {
  using item = typename First::value_type;
  std::vector<stream<item>> all;
  all.reserve(1 + sizeof...(more));
  all.push_back(std::move(first));
  (all.push_back(std::move(more)), ...);
  return all;
}

/// Why merge() and concat() do not take these arguments.
template <class First, class... More>
constexpr void explain_sources() {
  constexpr bool alike = alike_sources<std::remove_cvref_t<First>, std::remove_cvref_t<More>...>;
  static_assert(alike,
                "the sources of merge and concat must be generators of one item type: change the others first, as in "
                "std::move(source) | map(f)");
  static_assert(!alike, "merge and concat consume their sources: write merge(std::move(a), std::move(b))");
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

namespace detail {

template <class T>
async_generator<T> concatenated(std::vector<async_generator<T>> sources) {
  for (async_generator<T>& source : sources) {
    for (;;) {
      std::optional<T> item = co_await source.next();
      if (!item) break;
      co_yield give(*item);
    }
    source = async_generator<T>();
  }
}

}  // namespace detail

/// A stream of everything from the first source, then everything from the second, and so on. A source is read when the
/// one before it has ended, and dropped when it has ended itself.
template <class Source>
  requires detail::is_source_v<Source>
stream<typename Source::value_type> concat(std::vector<Source>&& sources) {
  using T = typename Source::value_type;
  detail::stream_description all;
  stream<T> made(detail::concatenated<T>(detail::all_joined(all, std::move(sources))));
  made = std::move(made).named("concat").declares(place_effect::loses, 0, detail::cannot_mix);
  return detail::stream_access::continued(std::move(all), std::move(made));
}
template <class First, class... More>
  requires detail::alike_sources<First, More...>
stream<typename First::value_type> concat(First&& first, More&&... more) {
  return concat(detail::in_a_vector(std::move(first), std::move(more)...));
}
/// For the compiler's message: anything else.
template <class First, class... More>
  requires(detail::is_source_v<std::remove_cvref_t<First>> && !detail::alike_sources<First, More...>)
detail::refused concat(First&&, More&&...) {
  detail::explain_sources<First, More...>();
  return detail::refused();
}
template <class Source>
  requires detail::is_source_v<Source>
detail::refused concat(const std::vector<Source>&) {
  static_assert(detail::never_v<Source>, "concat consumes its sources: write concat(std::move(sources))");
  return detail::refused();
}

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

template <class... Ts>
using zip_row = std::tuple<std::optional<Ts>...>;

/// Asks the sources one after the other, from the I-th on, so that every run makes its requests in the same order.
/// Returns how many have ended; stops at the first one unless `all`.
template <std::size_t I, class... Ts>
task<std::size_t> pull_row(std::tuple<async_generator<Ts>...>& sources, zip_row<Ts...>& row, bool all) {
  using item_type = std::tuple_element_t<I, std::tuple<Ts...>>;
  std::size_t ended = 0;
  std::optional<item_type> item = co_await std::get<I>(sources).next();
  if (item) {
    std::get<I>(row).emplace(std::move(*item));
  } else {
    ended = 1;
    if (!all) co_return ended;
  }
  if constexpr (I + 1 < sizeof...(Ts)) {
    task<std::size_t> others = pull_row<I + 1, Ts...>(sources, row, all);
    ended += co_await std::move(others);
  }
  co_return ended;
}

template <class... Ts, std::size_t... I>
std::tuple<Ts...> unwrap_row(zip_row<Ts...>& row, std::index_sequence<I...>) {
  return std::tuple<Ts...>(std::move(*std::get<I>(row))...);
}

template <class... Ts>
async_generator<std::tuple<Ts...>> zipped(std::tuple<async_generator<Ts>...> sources, bool equal) {
  for (;;) {
    std::optional<zip_row<Ts...>> row;
    row.emplace();
    task<std::size_t> pulled = pull_row<0, Ts...>(sources, *row, equal);
    const std::size_t ended = co_await std::move(pulled);
    pulled = task<std::size_t>();
    if (ended > 0) {
      if (equal && ended < sizeof...(Ts)) {
        throw error("zip_equal: " + std::to_string(ended) + " of " + std::to_string(sizeof...(Ts)) +
                    " sources ended before the others");
      }
      co_return;
    }
    std::tuple<Ts...> item = unwrap_row<Ts...>(*row, std::index_sequence_for<Ts...>());
    row.reset();
    co_yield give(item);
  }
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

namespace detail {

template <class... Ts>
stream<std::tuple<Ts...>> make_zip(const char* name, bool equal, stream<Ts>... sources) {
  stream_description all;
  std::tuple<async_generator<Ts>...> together{joined<Ts>(all, std::move(sources))...};  // braces: in this order
  stream<std::tuple<Ts...>> rows(zipped<Ts...>(std::move(together), equal));
  return stream_access::continued(std::move(all),
                                  std::move(rows).named(name).declares(place_effect::loses, 0, cannot_zip));
}

}  // namespace detail

/// A stream of tuples, one item of each source in each: `zip(images, labels)`. It ends with the source that ends first;
/// items that earlier sources gave for that tuple are dropped.
///
/// The sources are asked one after the other: if they should work at the same time, give each a buffer(). An
/// exception of a source is passed on.
template <class... Sources>
  requires(sizeof...(Sources) > 0 && (detail::is_source_v<Sources> && ...))
stream<std::tuple<typename Sources::value_type...>> zip(Sources... sources) {
  return detail::make_zip<typename Sources::value_type...>("zip", false, std::move(sources)...);
}

/// For sources that must have the same number of items: throws `error` when one ends before the others.
template <class... Sources>
  requires(sizeof...(Sources) > 0 && (detail::is_source_v<Sources> && ...))
stream<std::tuple<typename Sources::value_type...>> zip_equal(Sources... sources) {
  return detail::make_zip<typename Sources::value_type...>("zip_equal", true, std::move(sources)...);
}

/// When a mix of sources ends.
enum class mix_end {
  all,    ///< with the last source; the others share the weight of one that has ended
  first,  ///< when a source that was drawn has ended: the proportions hold to the end
};

/// See mix().
struct mix_options {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  mix_end end = mix_end::all;
};

namespace detail {

template <class T>
async_generator<T> mixed(std::vector<async_generator<T>> sources, std::vector<std::uint64_t> weights,
                         mix_options options) {
  rng random(options.seed, options.epoch, purpose::mix);
  std::uint64_t total = 0;
  for (const std::uint64_t weight : weights) total += weight;
  while (total > 0) {
    std::uint64_t ticket = random.below(total);
    std::size_t chosen = 0;
    while (ticket >= weights[chosen]) ticket -= weights[chosen++];
    std::optional<T> item = co_await sources[chosen].next();
    if (item) {
      co_yield give(*item);
      continue;
    }
    if (options.end == mix_end::first) co_return;
    sources[chosen] = async_generator<T>();
    total -= std::exchange(weights[chosen], 0);
  }
}

}  // namespace detail

/// A stream that draws each item from one of several sources, at random in proportion to `weights`:
/// `mix(std::move(sources), {3, 1})` takes three of four items from the first.
///
/// Which source an item comes from is a pure function of seed, epoch, weights and the sources' lengths, the same on
/// every machine (weights are whole numbers for that reason); a source of weight 0 is never asked. One source is asked
/// at a time. Throws configuration_error unless there is one weight for each source and one of them is not 0.
template <class Source>
  requires detail::is_source_v<Source>
stream<typename Source::value_type> mix(std::vector<Source> sources, std::vector<std::uint64_t> weights,
                                        mix_options options = {}) {
  using T = typename Source::value_type;
  if (weights.size() != sources.size()) throw configuration_error("mix: there must be one weight for each source");
  std::uint64_t total = 0;
  for (std::uint64_t w : weights) {
    if (w > UINT64_MAX - total) throw configuration_error("mix: the weights are too large");
    total += w;
  }
  if (total == 0) throw configuration_error("mix: a weight must be larger than 0");
  detail::stream_description all;
  std::vector<async_generator<T>> generators = detail::all_joined(all, std::move(sources));
  stream<T> made(detail::mixed<T>(std::move(generators), std::move(weights), options));
  made = std::move(made).named("mix").declares(place_effect::loses, 0, detail::cannot_mix);
  return detail::stream_access::continued(std::move(all), std::move(made));
}

}  // namespace millrace
