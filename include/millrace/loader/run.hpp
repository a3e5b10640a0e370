// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/loader/detail/explain_run.hpp>
#include <millrace/loader/runtime.hpp>

namespace millrace {

/// Runs `pipeline` on a runtime of its own, which ends with the run: `mill::run(std::move(pipeline), {.prefetch = 2})`.
/// Where one run follows another, or two go side by side, make a runtime and let it run them: it keeps connections,
/// slabs, device memory and threads. The end of this one waits, as a runtime's does, until devices are done with the
/// slots of to_device(). See pipeline_run, and runtime for what is thrown.
template <class Pipeline>
  requires detail::is_source_v<Pipeline>
[[nodiscard("dropping it ends the run")]] pipeline_run<typename Pipeline::value_type> run(
    Pipeline&& pipeline, const run_options& options = {}, const runtime_options& made_of = {}) {
  if (!pipeline) detail::misused(detail::empty_run);  // before threads are made
  return runtime(made_of).run(std::move(pipeline), options);
}

}  // namespace millrace
