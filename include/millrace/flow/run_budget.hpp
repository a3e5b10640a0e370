// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <millrace/coro/stage_record.hpp>

namespace millrace {

/// What the memory budget of a run leaves beyond the bounds that its stages have declared: for a stage that learns only
/// from the data that it needs more. First come, first served; nobody waits.
///
/// Concurrency: any thread. Lifetime: that of the run, longer than its stages.
class run_budget {
 public:
  static constexpr std::size_t unlimited = SIZE_MAX;  ///< what a run without a budget leaves

  explicit run_budget(std::size_t left) noexcept : left_(left) {}
  run_budget(const run_budget&) = delete;
  run_budget& operator=(const run_budget&) = delete;

  /// That of the run that a stage belongs to; null where there is no run, as on the loops of tests.
  static run_budget* of(const stage_record* stage) noexcept {
    return stage == nullptr || stage->owner == nullptr ? nullptr : stage->owner->budget();
  }

  /// Takes `n` bytes: whether there were as many.
  bool take(std::size_t n) noexcept {
    std::size_t left = left_.load(std::memory_order_relaxed);
    do {
      if (left == unlimited) return true;
      if (left < n) return false;
    } while (!left_.compare_exchange_weak(left, left - n, std::memory_order_relaxed));
    return true;
  }
  /// Takes half of what there is, `most` bytes at most: how many it took. The other half is for the next who asks.
  std::size_t take_half(std::size_t most) noexcept {
    std::size_t left = left_.load(std::memory_order_relaxed);
    std::size_t taken;
    do {
      if (left == unlimited) return most;
      taken = std::min(left / 2, most);
    } while (!left_.compare_exchange_weak(left, left - taken, std::memory_order_relaxed));
    return taken;
  }
  /// Gives back `n` bytes that were taken.
  void give_back(std::size_t n) noexcept {
    if (left_.load(std::memory_order_relaxed) != unlimited) left_.fetch_add(n, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::size_t> left_;
};

}  // namespace millrace
