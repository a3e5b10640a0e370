// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include <millrace/flow/flat_map.hpp>
#include <millrace/loader/run_options.hpp>
#include <millrace/loader/runtime_options.hpp>

/// \file
/// Overloads of run() for the compiler's message, each for one mistake and for nothing beyond it: a user may have a
/// function run() too, and the library's is found beside the library's types.

namespace millrace {

template <class Pipeline>
  requires detail::is_source_v<Pipeline>
detail::refused run(const Pipeline&, const run_options& = {}, const runtime_options& = {}) {
  static_assert(detail::never_v<Pipeline>, "run consumes the pipeline: write run(std::move(pipeline))");
  return detail::refused();
}

template <class Stage>
  requires std::is_base_of_v<detail::library_stage, Stage>
detail::refused run(const Stage&, const run_options& = {}, const runtime_options& = {}) {
  static_assert(detail::never_v<Stage>, "run takes a whole pipeline, which begins with a source: run(source | stage)");
  return detail::refused();
}

namespace detail {
/// What a range is converted to: whatever function of the user's takes the range itself is a better choice.
class range_for_run {
 public:
  template <class Range>
    requires(plain_range<const Range>)
  range_for_run(const Range&) {
    static_assert(never_v<Range>, "run takes a pipeline: make one of a range with from_range(std::move(range))");
  }
};
}  // namespace detail

inline detail::refused run(const detail::range_for_run&, const run_options& = {}, const runtime_options& = {}) {
  return detail::refused();
}

/// The sentence has been said.
template <class Refused>
  requires std::is_same_v<Refused, detail::refused>
Refused run(Refused, const run_options& = {}, const runtime_options& = {}) {
  return Refused();
}

}  // namespace millrace
