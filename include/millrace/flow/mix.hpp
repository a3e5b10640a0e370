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
#include <millrace/flow/detail/generators.hpp>
#include <millrace/flow/purpose.hpp>

namespace millrace {

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
  return detail::stream_door::continued(std::move(all), std::move(made).named("mix"));
}

}  // namespace millrace
