// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/detail/refused.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::detail {

/// For stages that consume several sources. What pipes do with one, for each: it gets a line in the stage table, and
/// what it says is joined to what the others say. The generator is left.
template <class T>
async_generator<T> joined(stream_description& all, stream<T> source) {
  stream_door::number(source);
  all.followed_by(stream_door::take_description(source));
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

/// Whether they are sources, given up to be consumed, whose items are of one type.
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
