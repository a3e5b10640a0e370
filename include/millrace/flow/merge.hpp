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

/// A stream of the items of all sources, in the order in which they get ready: `merge(std::move(sources))`. No two
/// runs need be alike; interleave() takes turns instead.
///
/// Every source is pulled ahead by a task of its own. What one of them throws is thrown after the items that came
/// before, and stops the others. A source is dropped when it has ended. Throws configuration_error when .ahead is 0.
template <class Source>
  requires detail::is_source_v<Source>
stream<typename Source::value_type> merge(std::vector<Source>&& sources, merge_options options = {}) {
  using T = typename Source::value_type;
  const std::size_t width = sources.empty() ? 1 : sources.size();
  const std::size_t items = width * options.ahead;
  const interleave_options how{.width = width, .order = order::arrival, .ahead = options.ahead};
  if (options.ahead == 0) throw configuration_error("merge: .ahead must not be 0");
  detail::stream_description all;
  async_generator<async_generator<T>> opened = from_range(detail::all_joined(all, std::move(sources))).generator();
  stream<T> made(
      detail::interleaved_as_they_come<async_generator<T>>(std::move(opened), how, options.bytes / width));
  return detail::stream_door::continued(
      std::move(all),
      std::move(made).named("merge").bounded(items, detail::declared_bytes<T>(items, options.bytes)));
}
template <class First, class... More>
  requires detail::alike_sources<First, More...>
stream<typename First::value_type> merge(First&& first, More&&... more) {
  return merge(detail::in_a_vector(std::move(first), std::move(more)...));
}
/// For the compiler's message: anything else.
template <class First, class... More>
  requires(detail::is_source_v<std::remove_cvref_t<First>> && !detail::alike_sources<First, More...>)
detail::refused merge(First&&, More&&...) {
  detail::explain_sources<First, More...>();
  return detail::refused();
}
template <class Source>
  requires detail::is_source_v<Source>
detail::refused merge(const std::vector<Source>&, const merge_options& = {}) {
  static_assert(detail::never_v<Source>, "merge consumes its sources: write merge(std::move(sources))");
  return detail::refused();
}

}  // namespace millrace
