// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/flow/detail/generators.hpp>
#include <millrace/flow/detail/interleaved.hpp>
#include <millrace/flow/from_range.hpp>
#include <millrace/flow/order.hpp>

namespace millrace {

/// See merge().
struct merge_options {
  std::size_t ahead = 1;         ///< items of each source pulled and not yet taken
  std::size_t bytes = 64 * MiB;  ///< of all those items together, for types with byte_size()
};

/// A generator of the items of all sources, in the order in which they get ready: `merge(std::move(sources))`. No two
/// runs need be alike; interleave() takes turns instead.
///
/// Every source is pulled ahead by a task of its own. What one of them throws is thrown after the items that came
/// before, and stops the others. A source is dropped when it has ended. Throws configuration_error when .ahead is 0.
template <class T>
async_generator<T> merge(std::vector<async_generator<T>>&& sources, merge_options options = {}) {
  const std::size_t width = sources.empty() ? 1 : sources.size();
  std::vector<stage_bounds> bounds = detail::take_all_bounds(sources);
  const std::size_t items = width * options.ahead;
  const interleave_options how{.width = width, .order = order::arrival, .ahead = options.ahead};
  if (options.ahead == 0) throw configuration_error("merge: .ahead must not be 0");
  return detail::interleaved_as_they_come<T>(from_range(std::move(sources)), how, options.bytes / width)
      .named("merge")
      .bounded(items, detail::declared_bytes<T>(items, options.bytes))
      .inherit(std::move(bounds));
}
template <class T, class... More>
  requires(std::is_same_v<More, async_generator<T>> && ...)
async_generator<T> merge(async_generator<T>&& first, More&&... more) {
  return merge(detail::generators(std::move(first), std::move(more)...));
}
/// For the compiler's message: anything else.
template <class First, class... More>
  requires(detail::is_generator_v<std::remove_cvref_t<First>>)
detail::refused merge(First&&, More&&...) {
  detail::explain_sources<First, More...>();
  return detail::refused();
}
template <class T>
detail::refused merge(const std::vector<async_generator<T>>&, const merge_options& = {}) {
  static_assert(detail::never_v<T>, "merge consumes its sources: write merge(std::move(sources))");
  return detail::refused();
}

}  // namespace millrace
