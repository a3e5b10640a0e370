// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/flow/stream.hpp>
#include <millrace/loader/detail/runtime_core.hpp>
#include <millrace/loader/pipeline_run.hpp>
#include <millrace/loader/run_options.hpp>
#include <millrace/retry/host_stats.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Keeps objects that are expensive to make, from one run to the next: the event loops and their threads, HTTP
/// connections with their TLS sessions, slabs, page-locked memory and the slots of to_device(), and the pool for
/// functions that compute.
///
///     mill::runtime rt({.loops = 2, .rank = mill::rank_from_environment()});
///     for (std::uint64_t epoch = 0; epoch < 90; ++epoch) {
///       auto run = rt.run(training(epoch));
///       for (auto& batch : run) train_step(batch);
///     }
///
/// Concurrency: run() and pool() are for any thread; several runs may run at once, each on the loop that has the
/// fewest, and share loops, connections, slabs and pool. A stage that computes on a loop's thread takes that time from
/// the other runs there. Cancellation: dropping a run affects no other. Lifetime: runs keep the loops and the pool
/// alive; the last of them and the runtime joins the threads, so it must not be destroyed on one of them, and waits
/// until devices are done with the slots of its runs, which the end of a run does not. Memory: slabs are kept at the
/// largest number that was in use at once, for each size of part; of each device's slots and page-locked slabs those of
/// the two sizes that were used last. Errors: io_error if no loop or thread can be made; a loop that has failed
/// fails its runs, and each run that is started there from then on; usage_error in a child of fork(), which has none of
/// the parent's threads: there the runtime, its runs and loops can only be dropped, which leaks their memory, and the
/// child makes its own runtime.
class runtime {
 public:
  explicit runtime(const runtime_options& options = {});
  runtime(runtime&&) noexcept = default;
  runtime& operator=(runtime&&) noexcept = default;
  ~runtime() = default;

  /// Starts `pipeline`. Throws configuration_error, before the first request, if the declared bounds do not fit into
  /// options.budget, and usage_error for an empty pipeline.
  template <class Pipeline>
    requires detail::is_source_v<Pipeline>
  [[nodiscard("dropping it ends the run")]] pipeline_run<typename Pipeline::value_type> run(
      Pipeline&& pipeline, const run_options& options = {}) {
    return pipeline_run<typename Pipeline::value_type>(core(), std::move(pipeline), options);
  }
  template <class Pipeline>
    requires detail::is_source_v<Pipeline>
  detail::refused run(const Pipeline&, const run_options& = {}) {
    static_assert(detail::never_v<Pipeline>, "run consumes the pipeline: write rt.run(std::move(pipeline))");
    return detail::refused();
  }

  /// Frees the device slots and page-locked memory that runs have left: for a program that needs the memory. Waits
  /// until the devices are done with them; memory of current runs, and of batches that the program still has, stays.
  /// The runtime's destructor does the same. Any thread.
  void free_device_slots() { core()->device_slots()->free(); }

  /// Measurements of the hosts of stores that this runtime has read from, and the number and length of requests that
  /// follow from them: the next run begins with those. Any thread.
  std::vector<host_stats> hosts() const { return core()->host_figures(); }

  /// The cost of an epoch of the pipeline's source (stream::plan()), and a line for each of hosts(). For people; before
  /// the run.
  template <class T>
  std::string plan(const stream<T>& pipeline) const {
    return plan_with_hosts(pipeline.plan());
  }

  /// The pool of stages that were given none; for `.on = rt.pool()`. Made when it is first needed.
  cpu_pool& pool() { return *core()->pool(); }

 private:
  const std::shared_ptr<detail::runtime_core>& core() const {
    if (core_ == nullptr) detail::misused("a runtime was used that was moved from");
    core_->process().check("a runtime");
    return core_;
  }

  std::string plan_with_hosts(std::string text) const;

  std::shared_ptr<detail::runtime_core> core_;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::string runtime::plan_with_hosts(std::string text) const {
  for (const host_stats& each : hosts()) {
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += each.text() + '\n';
  }
  return text;
}

inline runtime::runtime(const runtime_options& options)
    : core_(detail::runtime_core::make(options)) {}

}  // namespace millrace
