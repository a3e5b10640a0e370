// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include <millrace/flow/flat_map.hpp>
#include <millrace/loader/run_options.hpp>
#include <millrace/loader/runtime.hpp>

/// Overloads of run() that give the compiler's message, each for one mistake only: a user may have a function run(),
/// too, and the library's is found with the library's types.

namespace millrace::inline MILLRACE_ABI {

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
/// A range is converted to this: a user's function that takes the range itself is a better match.
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

/// After another message: no second one.
template <class Refused>
  requires std::is_same_v<Refused, detail::refused>
Refused run(Refused, const run_options& = {}, const runtime_options& = {}) {
  return Refused();
}

/// Runs `pipeline` on a runtime of its own, which ends with the run: `mill::run(std::move(pipeline), {.prefetch = 2})`.
/// For several runs, one after another or side by side, make a runtime: it keeps connections, slabs and threads. The
/// end of this one waits for no device: memory that a device still uses, slots of to_device() and page-locked memory,
/// stays with the process, and the next run() on that device reuses it; free_device_slots() frees it. See pipeline_run,
/// and runtime for errors.
template <class Pipeline>
  requires detail::is_source_v<Pipeline>
[[nodiscard("dropping it ends the run")]] pipeline_run<typename Pipeline::value_type> run(
    Pipeline&& pipeline, const run_options& options = {}, const runtime_options& made_of = {}) {
  if (!pipeline) detail::misused(detail::empty_run);  // before threads are made
  return pipeline_run<typename Pipeline::value_type>(detail::core_for_one_run(made_of), std::move(pipeline), options);
}

/// Frees the device slots and page-locked memory that runs by run() have left: for a program that has had its last run.
/// Waits until the devices are done with them; memory of current runs, and of batches that the program still has,
/// stays. Any thread. (A runtime has its own: runtime::free_device_slots().)
inline void free_device_slots() { slot_store::of_process().free(); }

}  // namespace millrace
