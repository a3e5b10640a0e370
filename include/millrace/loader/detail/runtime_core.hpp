// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/runtime_parts.hpp>
#include <millrace/device/slot_store.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/loop_thread.hpp>
#include <millrace/loader/runtime_options.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::detail {

/// The inside of a runtime, kept by it and by its runs. Ends on a thread that is none of its own.
class runtime_core final : public runtime_parts {
 public:
  explicit runtime_core(const runtime_options& o);
  ~runtime_core() {
    for (const std::unique_ptr<loop_thread>& each : loops_) each->drain();
  }

  /// The loop that has the fewest runs gets one more; its number.
  std::size_t move_in() noexcept;
  void move_out(std::size_t home) noexcept {
    const std::lock_guard lock(mutex_);
    --runs_[home];
  }
  event_loop& loop(std::size_t i) const noexcept { return loops_[i]->loop(); }
  const runtime_options& options() const noexcept { return options_; }

  executor& next_loop() noexcept override {
    return loops_[turn_.fetch_add(1, std::memory_order_relaxed) % loops_.size()]->loop();
  }
  MILLRACE_INLINE cpu_pool& pool() override;
  MILLRACE_INLINE slab_pool slabs(std::size_t bytes) override;
  slot_store& device_slots() noexcept override { return device_slots_; }
  const http::engine_options& http() const noexcept override { return options_.http; }
  MILLRACE_INLINE void say(const char* line) noexcept override;

 private:
  static void pass_on(void* self, const char* line) { static_cast<runtime_core*>(self)->say(line); }
  static void say_nothing(void*, const char*) {}

  /// Of the machine's cores. A process that a launcher has bound to its share may use no others.
  unsigned fair_share() const noexcept;

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

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/detail/impl/runtime_core.ipp>
#endif
