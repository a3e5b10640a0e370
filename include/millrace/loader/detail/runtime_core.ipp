// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
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

namespace millrace::detail {

MILLRACE_INLINE runtime_core::runtime_core(const runtime_options& o, slot_store* slots)
    : options_(o),
      limits_(limits_of_process()),
      share_(share_of_cpus(limits_, ranks_of(o))),
      how_many_loops_(o.loops != 0 ? o.loops : loops_for(share_)),
      shared_slots_(slots),
      addresses_(std::make_shared<http::detail::addresses>()),
      hosts_(std::make_shared<store_hosts>()) {
  loop_options how;
  how.force_epoll = o.force_epoll;
  if (o.log != nullptr) {
    how.log = &log_of_loop;
    how.log_context = this;
  }
  while (loops_.size() < how_many_loops_) {
    const bool refused = !loops_.empty() && std::strcmp(loops_.back()->loop().backend(), "epoll") == 0;
    if (refused) how.log = &log_nothing;  // the first loop has logged it
    loops_.push_back(std::make_unique<loop_thread>(how, this));
  }
  runs_.resize(loops_.size());
  const std::string line = o.loops != 0 ? std::string() : loops_line(how_many_loops_, share_);
  if (!line.empty() && first_time(line)) log(line.c_str());
}

MILLRACE_INLINE std::string runtime_core::loops_line(unsigned loops, unsigned cores) {
  if (loops == 1) return {};
  return "millrace: " + std::to_string(loops) + " event loops, as the process may use " + std::to_string(cores) +
         " cores: runtime_options::loops is another number";
}

MILLRACE_INLINE std::vector<host_stats> runtime_core::host_figures() const { return hosts_->stats(); }

MILLRACE_INLINE void runtime_core::share_with(run_metrics& metrics) const noexcept {
  metrics.share(hosts_, addresses_, how_many_loops_, options_.loops == 0);
}

MILLRACE_INLINE std::shared_ptr<runtime_core> core_for_one_run(const runtime_options& o) {
  return runtime_core::make(o, &slot_store::of_process());
}

MILLRACE_INLINE std::shared_ptr<runtime_core> runtime_core::make(const runtime_options& o, slot_store* slots) {
  return std::shared_ptr<runtime_core>(new runtime_core(o, slots), [](runtime_core* core) {
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
    pool_ = std::make_unique<cpu_pool>(options_.threads != 0 ? options_.threads : share_);
  }
  if (options_.threads == 0) {
    const std::string why = why_share(limits_, ranks_of(options_));
    const std::string line =
        "millrace: " + std::to_string(share_) + (share_ == 1 ? " pool thread: " : " pool threads: ") + why;
    if (!why.empty() && first_time(line)) log(line.c_str());
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

MILLRACE_INLINE void runtime_core::log(const char* line) noexcept {
  const std::lock_guard lock(log_mutex_);
  if (options_.log != nullptr) {
    options_.log(options_.log_context, line);
  } else {
    std::fprintf(stderr, "%s\n", line);
  }
}

}  // namespace millrace::detail
