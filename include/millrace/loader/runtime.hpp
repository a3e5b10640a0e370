// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <millrace/base/detail/refused.hpp>
#include <millrace/loader/detail/runtime_core.hpp>
#include <millrace/loader/pipeline_run.hpp>
#include <millrace/loader/runtime_options.hpp>

namespace millrace {

/// What is expensive to make and outlives runs: the event loops and their threads, HTTP connections with their TLS
/// sessions, slabs, page-locked memory and the slots of to_device(), and the pool for functions that compute.
///
///     mill::runtime rt({.loops = 2, .rank = mill::rank_from_environment()});
///     for (std::uint64_t epoch = 0; epoch < 90; ++epoch) {
///       auto run = rt.run(training(epoch));
///       for (auto& batch : run) train_step(batch);
///     }
///
/// Concurrency: run() and pool() are for any thread; several runs go side by side, each on the loop that has the
/// fewest, and all of them share loops, connections, slabs and pool. A stage that computes on a loop's thread takes
/// that time from the other runs there. Cancellation: a run that is dropped takes only itself away. Lifetime: runs keep
/// what they run on; the last of them and of the runtime joins the threads, so that must be no thread of the runtime's
/// own, and waits until devices are done with the slots of its runs, which the end of a run does not. Memory: slabs are
/// kept at the largest number that was in use at once, for each size of part; of each device's slots and page-locked
/// slabs those of the two sizes that were used last. Errors: io_error and std::system_error where no loop or thread can
/// be made; a loop that has failed fails its runs, and each run that is started there from then on.
class runtime {
 public:
  explicit runtime(const runtime_options& options = {});
  runtime(runtime&&) noexcept = default;
  runtime& operator=(runtime&&) noexcept = default;
  ~runtime() = default;

  /// Starts `pipeline`. Throws configuration_error before anything is requested when the declared bounds do not fit
  /// into options.budget, and usage_error for an empty pipeline.
  template <class Pipeline>
    requires detail::is_source_v<Pipeline>
  [[nodiscard("dropping it ends the run")]] pipeline_run<typename Pipeline::value_type> run(
      Pipeline&& pipeline, const run_options& options = {}) {
    return pipeline_run<typename Pipeline::value_type>(inside(), std::move(pipeline), options);
  }
  template <class Pipeline>
    requires detail::is_source_v<Pipeline>
  detail::refused run(const Pipeline&, const run_options& = {}) {
    static_assert(detail::never_v<Pipeline>, "run consumes the pipeline: write rt.run(std::move(pipeline))");
    return detail::refused();
  }

  /// Frees what runs have left on devices, slots and page-locked memory: for a program that wants the memory for
  /// something else. Waits until the devices are done with it; what runs use, and batches that the program still has,
  /// stay. The runtime's end does the same. Any thread.
  void free_device_slots() { inside()->device_slots().free(); }

  /// The pool that stages work on which were given none; for `.on = rt.pool()`. Made when it is first needed.
  cpu_pool& pool() { return inside()->pool(); }

 private:
  const std::shared_ptr<detail::runtime_core>& inside() const {
    if (core_ == nullptr) detail::misused("a runtime was used that was moved from");
    return core_;
  }

  std::shared_ptr<detail::runtime_core> core_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/impl/runtime.ipp>
#endif
