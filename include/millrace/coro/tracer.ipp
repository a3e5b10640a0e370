// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/tracer.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void tracer::add(const trace_event& e) noexcept {
  const std::lock_guard lock(mutex_);
  if (ring_ == nullptr) return;
  ring_[added_++ % most_] = e;
}

MILLRACE_INLINE std::uint64_t tracer::start(std::uint32_t& run) {
  const std::lock_guard lock(mutex_);
  if (ring_ == nullptr) ring_ = new trace_event[most_];
  runs_.fetch_add(1, std::memory_order_relaxed);
  run = ++started_;
  return added_;
}

MILLRACE_INLINE std::vector<trace_event> tracer::stop(std::uint64_t since, std::uint64_t& dropped) {
  const std::lock_guard lock(mutex_);
  runs_.fetch_sub(1, std::memory_order_relaxed);
  dropped = added_ - since > most_ ? added_ - since - most_ : 0;
  std::vector<trace_event> out;
  out.reserve(added_ - since - dropped);
  for (std::uint64_t i = since + dropped; i < added_; ++i) out.push_back(ring_[i % most_]);
  return out;
}

}  // namespace millrace::detail
