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
  bool take(int cost) noexcept;

  /// Puts tokens back, up to the capacity.
  void give(int tokens) noexcept;

  int tokens() const noexcept { return tokens_.load(std::memory_order_relaxed); }

 private:
  const int capacity_;
  std::atomic<int> tokens_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/impl/retry_quota.ipp>
#endif
