// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include <millrace/flow/flat_map.hpp>
#include <millrace/loader/run_options.hpp>

/// \file
/// Overloads of run() for the compiler's message, each for one mistake and for nothing beyond it: a user may have a
/// function run() too, and the library's is found beside the library's types.

namespace millrace {

template <class T>
detail::refused run(const async_generator<T>&, const run_options& = {}) {
  static_assert(detail::never_v<T>, "run consumes the pipeline: write run(std::move(pipeline))");
  return detail::refused();
}

template <class Stage>
  requires std::is_base_of_v<detail::library_stage, Stage>
detail::refused run(const Stage&, const run_options& = {}) {
  static_assert(detail::never_v<Stage>, "run takes a whole pipeline, which begins with a source: run(source | stage)");
  return detail::refused();
}

/// The pack makes it the last choice.
template <class Range, class... Options>
  requires(detail::plain_range<const Range>)
detail::refused run(const Range&, const Options&...) {
  static_assert(detail::never_v<Range>, "run takes a pipeline: make one of a range with from_range(std::move(range))");
  return detail::refused();
}

/// The sentence has been said.
template <class Refused>
  requires std::is_same_v<Refused, detail::refused>
Refused run(Refused, const run_options& = {}) {
  return Refused();
}

}  // namespace millrace
