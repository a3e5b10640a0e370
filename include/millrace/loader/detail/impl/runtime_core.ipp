// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/loader/detail/runtime_core.hpp>

namespace millrace::detail {

MILLRACE_INLINE runtime_core::runtime_core(const runtime_options& o) : options_(o) {
  loop_options how;
  how.force_epoll = o.force_epoll;
  if (o.log != nullptr) {
    how.log = &pass_on;
    how.log_context = this;
  }
  do {
    const bool refused = !loops_.empty() && std::strcmp(loops_.back()->loop().backend(), "epoll") == 0;
    if (refused) how.log = &say_nothing;  // it has been said
    loops_.push_back(std::make_unique<loop_thread>(how, this));
  } while (loops_.size() < o.loops);
  runs_.resize(loops_.size());
}

MILLRACE_INLINE std::size_t runtime_core::move_in() noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t least = 0;
  for (std::size_t i = 1; i < runs_.size(); ++i) {
    if (runs_[i] < runs_[least]) least = i;
  }
  ++runs_[least];
  return least;
}

MILLRACE_INLINE cpu_pool& runtime_core::pool() {
  const std::lock_guard lock(mutex_);
  if (pool_ == nullptr) pool_ = std::make_unique<cpu_pool>(options_.threads != 0 ? options_.threads : fair_share());
  return *pool_;
}

MILLRACE_INLINE slab_pool runtime_core::slabs(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const slab_pool& each : slabs_) {
    if (each.slab_bytes() == bytes) return each;
  }
  slabs_.push_back(slab_pool(bytes));
  return slabs_.back();
}

MILLRACE_INLINE void runtime_core::say(const char* line) noexcept {
  const std::lock_guard lock(said_);
  if (options_.log != nullptr) {
    options_.log(options_.log_context, line);
  } else {
    std::fprintf(stderr, "%s\n", line);
  }
}

MILLRACE_INLINE unsigned runtime_core::fair_share() const noexcept {
  const long all = ::sysconf(_SC_NPROCESSORS_ONLN);
  const unsigned ranks = options_.rank && options_.rank->local_world_size > 1 ? options_.rank->local_world_size : 1;
  const unsigned share = all < static_cast<long>(ranks) ? 1 : static_cast<unsigned>(all) / ranks;
  const unsigned usable = cpu_pool::usable_cores();
  return share < usable ? share : usable;
}

}  // namespace millrace::detail
