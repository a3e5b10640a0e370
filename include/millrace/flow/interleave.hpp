// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/flow/detail/interleaved.hpp>
#include <millrace/flow/pipe.hpp>

namespace millrace {

/// What interleave() returns.
class interleave_stage : public detail::library_stage {
 public:
  explicit interleave_stage(interleave_options options) : options_(options) {
    if (options.width == 0) throw configuration_error("interleave: .width must not be 0");
    if (options.ahead == 0) throw configuration_error("interleave: .ahead must not be 0");
  }

  /// For the compiler's message: why it does not take items of type T.
  template <class T>
  static constexpr void explain() {
    static_assert(detail::never_v<T>,
                  "interleave takes a stream of generators: make one of each item first, as in shards | map(open) | "
                  "interleave()");
  }

  template <class Source>
    requires detail::is_source_v<Source>
  stream<typename Source::value_type> operator()(async_generator<Source> sources) && {
    using T = typename Source::value_type;
    const std::size_t items = options_.width * options_.ahead;
    const std::size_t bytes = options_.bytes / options_.width;
    stream<T> made = options_.order == order::ordered
                         ? detail::interleaved_in_turn<Source>(std::move(sources), options_, bytes)
                         : detail::interleaved_as_they_come<Source>(std::move(sources), options_, bytes);
    const std::size_t inner =
        options_.inner_bytes > SIZE_MAX / options_.width ? SIZE_MAX : options_.inner_bytes * options_.width;
    return std::move(made)
        .named("interleave")
        .bounded("interleave, open sources", options_.width, inner)
        .bounded(items, detail::declared_bytes<T>(items, options_.bytes));
  }

 private:
  interleave_options options_;
};

/// A stage that merges a stream of generators, or of streams: `shards | map(open) | interleave({.width = 8})`.
///
/// `width` generators are open at once, each pulled ahead by a task of its own up to `ahead` items and its share of
/// `bytes`. In order (the default) they are taken from in turn, one item each; one that has ended is replaced, in its
/// place, by the next from the stream when its turn comes: the result depends on nothing but the generators' contents.
/// In order of arrival items are taken as they come, so that a slow generator delays only itself.
///
/// A generator is dropped when it has ended. Errors: what a generator throws is thrown after the items that it gave
/// before, in its turn, and stops all others; what the stream of generators throws is thrown when the turn comes to the
/// generator that is missing (in order of arrival: when the open ones have ended). `.failures` bears what generators
/// throw, counted in generators; what the stream of them throws always ends it.
/// In order, items of two epochs do not mix, where they say theirs (epoch_mark): a generator that has come to the next
/// epoch waits until all are there.
/// A source whose stages declare more than `.inner_bytes`, where that is stated, is a configuration_error in its turn.
/// Dropping the stage drops everything. Throws configuration_error for a width or an `ahead` of 0.
inline interleave_stage interleave(interleave_options options = {}) { return interleave_stage(options); }

}  // namespace millrace
