// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/http/detail/addresses.hpp>
#include <millrace/loader/detail/run_state.hpp>
#include <millrace/loader/detail/runtime_core.hpp>
#include <millrace/retry/detail/store_host.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE runtime_core::runtime_core(const runtime_options& o, slot_store* slots, const std::string& root)
    : options_(o),
      placer_(new thread_placer(o.placement != placement::off, place_of(o), root)),
      share_(share_of_cpus(placer_->now().limits, ranks_of(o))),
      how_many_loops_(o.loops != 0 ? o.loops : loops_for(share_)),
      shared_slots_(slots),
      addresses_(new http::detail::addresses),
      hosts_(new store_hosts) {
  loop_options how;
  how.force_epoll = o.force_epoll;
  if (o.log != nullptr) how.log = log_function::to<&runtime_core::log>(*this);
  while (loops_.size() < how_many_loops_) {
    const bool refused = !loops_.empty() && std::strcmp(loops_.back()->loop().backend(), "epoll") == 0;
    if (refused) how.log = [](const log_record&) {};  // the first loop has logged it
    loops_.push_back(std::make_unique<loop_thread>(how, this));
  }
  runs_.resize(loops_.size());
  const std::string line = o.loops != 0 ? std::string() : loops_line(how_many_loops_, share_);
  if (!line.empty()) log_once(line);
  if (const thread_place place = placer_->now(); place.kept) {
    keep_threads();
    log_once("millrace: loops and pool threads are " + place.text);
  }
}

MILLRACE_INLINE place_wanted runtime_core::place_of(const runtime_options& o) noexcept {
  place_wanted wanted;
  wanted.node = static_cast<int>(o.placement);
  wanted.ranks = ranks_of(o);
  wanted.local_index = o.rank ? o.rank->local_index : 0;
  wanted.threads = o.threads;
  return wanted;
}

MILLRACE_INLINE void runtime_core::follow_device(const std::string& pci_address) {
  std::string line;
  if (placer_->follow(pci_address, line)) {
    share_ = share_of_cpus(placer_->now().limits, ranks_of(options_));
    keep_threads();
  }
  if (!line.empty()) log_once(line);
}

/// Keeps the threads that there are where they belong. The kernel allocates memory on the node of the thread that first
/// writes it, and the driver page-locked memory on that of the caller, so neither needs a policy of its own.
MILLRACE_INLINE void runtime_core::keep_threads() {
  thread_place place;
  int failed = 0;
  const auto note = [&failed](int code) {
    if (code != 0) failed = code;
  };
  {
    const std::lock_guard lock(mutex_);
    place = placer_->now();
    for (const std::unique_ptr<loop_thread>& each : loops_) note(each->keep_on(place.cpus));
    if (pool_ != nullptr) note(pool_->keep_on(place.cpus));
  }
  if (failed != 0) {
    log_once("millrace: loops and pool threads could not be kept " + place.text + ": " + std::strerror(failed));
  }
}

MILLRACE_INLINE std::string runtime_core::loops_line(unsigned loops, unsigned cores) {
  if (loops == 1) return {};
  return "millrace: " + std::to_string(loops) + " event loops, as the process may use " + std::to_string(cores) +
         " cores; runtime_options::loops sets another number";
}

MILLRACE_INLINE runtime_counts* runtime_core::counts() noexcept { return &hosts_->counts; }

MILLRACE_INLINE tracer* runtime_core::trace() noexcept { return hosts_->events.on() ? &hosts_->events : nullptr; }

MILLRACE_INLINE tracer& runtime_core::all_traces() noexcept { return hosts_->events; }

MILLRACE_INLINE std::vector<host_stats> runtime_core::host_figures() const { return hosts_->stats(); }

MILLRACE_INLINE void runtime_core::share_with(run_metrics& metrics) const noexcept {
  metrics.share(hosts_, addresses_, how_many_loops_, options_.loops == 0);
}

MILLRACE_INLINE std::shared_ptr<runtime_core> core_for_one_run(const runtime_options& o) {
  return runtime_core::make(o, &slot_store::of_process());
}

MILLRACE_INLINE std::shared_ptr<runtime_core> runtime_core::make(const runtime_options& o, slot_store* slots,
                                                                 const std::string& root) {
  return std::shared_ptr<runtime_core>(new runtime_core(o, slots, root), [](runtime_core* core) {
    if (core->process_.here()) delete core;
  });
}

MILLRACE_INLINE std::size_t runtime_core::assign_loop() noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t least = 0;
  for (std::size_t i = 1; i < runs_.size(); ++i) {
    if (runs_[i] < runs_[least]) least = i;
  }
  ++runs_[least];
  return least;
}

MILLRACE_INLINE cpu_pool* runtime_core::pool() {
  {
    const std::lock_guard lock(mutex_);
    if (pool_ != nullptr) return pool_.get();
    pool_ = std::make_unique<cpu_pool>(options_.threads != 0 ? options_.threads : share_.load());
  }
  const thread_place place = placer_->now();
  if (place.kept) keep_threads();  // they have the mask of the thread that has made them
  if (options_.threads == 0) {
    const std::string why = why_share(place.limits, ranks_of(options_));
    const unsigned threads = pool_->threads();
    if (!why.empty()) {
      log_once("millrace: " + std::to_string(threads) + (threads == 1 ? " pool thread: " : " pool threads: ") + why);
    }
  }
  return pool_.get();
}

/// One loop carries some 16 Gbit/s of TLS, and 50 without: as much as its rank's other cores decode, up to 16 of them.
MILLRACE_INLINE unsigned runtime_core::loops_for(unsigned cores) noexcept {
  return cores < 16 ? 1 : cores < 32 ? 2 : 4;
}

MILLRACE_INLINE slab_pool runtime_core::slabs(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const slab_pool& each : slabs_) {
    if (each.slab_bytes() == bytes) return each;
  }
  slabs_.push_back(slab_pool(bytes));
  return slabs_.back();
}

MILLRACE_INLINE void runtime_core::log_once(const std::string& line) {
  if (first_time(line)) log(log_record(log_level::info, line));
}

MILLRACE_INLINE void runtime_core::log(const log_record& record) noexcept {
  if (options_.log == nullptr) return log_to_process(record);
  const std::lock_guard lock(log_mutex_);
  options_.log(record);
}

}  // namespace millrace::detail
