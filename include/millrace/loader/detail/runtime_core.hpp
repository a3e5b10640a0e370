// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/device/slot_store.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/detail/numa.hpp>
#include <millrace/io/loop_thread.hpp>
#include <millrace/loader/run_options.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI {
class host_stats;
}

namespace millrace::inline MILLRACE_ABI::detail {

class run_metrics;

/// The implementation of a runtime, shared by it and its runs. Must not be destroyed on one of its own threads.
class runtime_core final : public runtime_parts {
 public:
  /// `slots`: the store to which runs return device memory; null: its own, whose destructor waits for the devices. The
  /// last owner destroys it, except in a child of fork(), where it is leaked.
  /// `root`: the folder whose sys/ and proc/ tell about NUMA nodes and devices; "" except in tests.
  static std::shared_ptr<runtime_core> make(const runtime_options& o, slot_store* slots = nullptr,
                                            const std::string& root = {});
  runtime_core(const runtime_options& o, slot_store* slots, const std::string& root);
  ~runtime_core() {
    for (const std::unique_ptr<loop_thread>& each : loops_) each->drain();
  }

  /// How many loops a runtime makes by itself.
  static unsigned loops_for(unsigned cores) noexcept;

  const own_process& process() const noexcept { return process_; }
  /// Assigns a run to the loop that has the fewest, and returns its number.
  std::size_t assign_loop() noexcept;
  void release_loop(std::size_t i) noexcept {
    const std::lock_guard lock(mutex_);
    --runs_[i];
  }
  event_loop& loop(std::size_t i) const noexcept { return loops_[i]->loop(); }
  const runtime_options& options() const noexcept { return options_; }
  /// Adds the runtime's part to a run's metrics.
  void share_with(run_metrics& metrics) const noexcept;
  std::vector<host_stats> host_figures() const;
  /// The log line for a number of loops that the runtime has chosen; empty for one.
  static std::string loops_line(unsigned loops, unsigned cores);

  executor& next_loop() noexcept override {
    return loops_[turn_.fetch_add(1, std::memory_order_relaxed) % loops_.size()]->loop();
  }
  std::size_t loops() const noexcept override { return how_many_loops_; }
  MILLRACE_INLINE cpu_pool* pool() override;
  unsigned cores() const noexcept override { return share_; }
  const std::shared_ptr<thread_placer>& placer() const noexcept { return placer_; }
  bool follows_devices() const noexcept override { return placer_->follows(); }
  MILLRACE_INLINE void follow_device(const std::string& pci_address) override;
  MILLRACE_INLINE slab_pool slabs(std::size_t bytes) override;
  slot_store* device_slots() noexcept override {
    return shared_slots_.store != nullptr ? shared_slots_.store : &own_slots_;
  }
  const http::engine_options* http() const noexcept override { return &options_.http; }
  http::detail::addresses* addresses() noexcept override { return addresses_.get(); }
  store_hosts* hosts() noexcept override { return hosts_.get(); }
  MILLRACE_INLINE runtime_counts* counts() noexcept override;
  MILLRACE_INLINE tracer* trace() noexcept override;
  const profiler_ranges* ranges() const noexcept override { return options_.ranges; }
  /// trace(), whether or not a run is traced.
  tracer& all_traces() noexcept;
  MILLRACE_INLINE void log(const log_record& record) noexcept override;

 private:
  /// A store that outlives the runtime: at the runtime's end, frees the slots that no device uses any more.
  struct shared_slot_store {
    explicit shared_slot_store(slot_store* s) noexcept : store(s) {}
    shared_slot_store(const shared_slot_store&) = delete;
    shared_slot_store& operator=(const shared_slot_store&) = delete;
    ~shared_slot_store() {
      if (store != nullptr) store->free_idle();
    }
    slot_store* const store;
  };

  static place_wanted place_of(const runtime_options& o) noexcept;
  void keep_threads();
  void log_once(const std::string& line);

  static unsigned ranks_of(const runtime_options& o) noexcept { return o.rank ? o.rank->local_world_size : 1; }

  const own_process process_;
  const runtime_options options_;
  const std::shared_ptr<thread_placer> placer_;  // its runs show the placement, also after the runtime's end
  std::atomic<unsigned> share_;                  // of the machine's CPUs
  const unsigned how_many_loops_;
  std::mutex log_mutex_;
  std::atomic<std::size_t> turn_{0};
  std::mutex mutex_;
  std::vector<unsigned> runs_;  // on each loop
  std::vector<slab_pool> slabs_;
  slot_store own_slots_;
  const shared_slot_store shared_slots_;
  const std::shared_ptr<http::detail::addresses> addresses_;  // shared, as its deleter knows the class
  const std::shared_ptr<store_hosts> hosts_;                  // likewise
  std::unique_ptr<cpu_pool> pool_;
  std::vector<std::unique_ptr<loop_thread>> loops_;  // declared last: they use the rest
};

/// For one run(): its end waits for no device. Slots that are still in use go to slot_store::of_process().
std::shared_ptr<runtime_core> core_for_one_run(const runtime_options& o);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/detail/runtime_core.ipp>
#endif
