// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include <unistd.h>

#include <millrace/coro/runtime_parts.hpp>
#include <millrace/device/slot_store.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/loop_thread.hpp>
#include <millrace/loader/runtime_options.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::detail {

/// The inside of a runtime, kept by it and by its runs. Ends on a thread that is none of its own.
template <class Unused = void>
class runtime_core final : public runtime_parts {
 public:
  explicit runtime_core(const runtime_options& o) : options_(o) {
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
  ~runtime_core() {
    for (const std::unique_ptr<loop_thread>& each : loops_) each->drain();
  }

  /// The loop that has the fewest runs gets one more; its number.
  std::size_t move_in() noexcept {
    const std::lock_guard lock(mutex_);
    std::size_t least = 0;
    for (std::size_t i = 1; i < runs_.size(); ++i) {
      if (runs_[i] < runs_[least]) least = i;
    }
    ++runs_[least];
    return least;
  }
  void move_out(std::size_t home) noexcept {
    const std::lock_guard lock(mutex_);
    --runs_[home];
  }
  event_loop& loop(std::size_t i) const noexcept { return loops_[i]->loop(); }
  const runtime_options& options() const noexcept { return options_; }

  executor& next_loop() noexcept override {
    return loops_[turn_.fetch_add(1, std::memory_order_relaxed) % loops_.size()]->loop();
  }
  cpu_pool& pool() override {
    const std::lock_guard lock(mutex_);
    if (pool_ == nullptr) pool_ = std::make_unique<cpu_pool>(options_.threads != 0 ? options_.threads : fair_share());
    return *pool_;
  }
  slab_pool slabs(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    for (const slab_pool& each : slabs_) {
      if (each.slab_bytes() == bytes) return each;
    }
    slabs_.push_back(slab_pool(bytes));
    return slabs_.back();
  }
  slot_store& device_slots() noexcept override { return device_slots_; }
  const http::engine_options& http() const noexcept override { return options_.http; }
  void say(const char* line) noexcept override {
    const std::lock_guard lock(said_);
    if (options_.log != nullptr) {
      options_.log(options_.log_context, line);
    } else {
      std::fprintf(stderr, "%s\n", line);
    }
  }

 private:
  static void pass_on(void* self, const char* line) { static_cast<runtime_core*>(self)->say(line); }
  static void say_nothing(void*, const char*) {}

  /// Of the machine's cores. A process that a launcher has bound to its share may use no others.
  unsigned fair_share() const noexcept {
    const long all = ::sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned ranks = options_.rank && options_.rank->local_world_size > 1 ? options_.rank->local_world_size : 1;
    const unsigned share = all < static_cast<long>(ranks) ? 1 : static_cast<unsigned>(all) / ranks;
    const unsigned usable = cpu_pool::usable_cores();
    return share < usable ? share : usable;
  }

  const runtime_options options_;
  std::mutex said_;
  std::atomic<std::size_t> turn_{0};
  std::mutex mutex_;
  std::vector<unsigned> runs_;  // on each loop
  std::vector<slab_pool> slabs_;
  slot_store device_slots_;
  std::unique_ptr<cpu_pool> pool_;
  std::vector<std::unique_ptr<loop_thread>> loops_;  // declared last: they use the rest
};

}  // namespace millrace::detail
