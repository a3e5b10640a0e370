// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>

namespace millrace {

/// Tokens that all requests of a client share: retries take some, successes bring some back.
///
/// When most requests fail the quota runs dry and requests fail at once: a client never multiplies the load on a store
/// that is down. Safe to use from several threads.
class retry_quota {
 public:
  explicit retry_quota(int capacity = 500) noexcept : retry_quota(capacity, capacity) {}
  /// Starts with `tokens` of `capacity`.
  retry_quota(int capacity, int tokens) noexcept : capacity_(capacity), tokens_(std::clamp(tokens, 0, capacity)) {}

  /// Takes `cost` tokens, or none and returns false when there are fewer.
  bool take(int cost) noexcept {
    int have = tokens_.load(std::memory_order_relaxed);
    do {
      if (have < cost) return false;
    } while (!tokens_.compare_exchange_weak(have, have - cost, std::memory_order_relaxed));
    return true;
  }

  /// Puts tokens back, up to the capacity.
  void give(int tokens) noexcept {
    int have = tokens_.load(std::memory_order_relaxed);
    int then;
    do {
      then = std::min(capacity_, have + tokens);
    } while (!tokens_.compare_exchange_weak(have, then, std::memory_order_relaxed));
  }

  int tokens() const noexcept { return tokens_.load(std::memory_order_relaxed); }

 private:
  const int capacity_;
  std::atomic<int> tokens_;
};

}  // namespace millrace
