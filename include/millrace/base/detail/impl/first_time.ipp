// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>

namespace millrace::detail {

MILLRACE_INLINE bool first_time(std::string_view line) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : line) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  if (hash == 0) hash = 1;
  for (std::atomic<std::uint64_t>& place : lines_said) {
    std::uint64_t there = 0;
    if (place.compare_exchange_strong(there, hash, std::memory_order_relaxed)) return true;
    if (there == hash) return false;
  }
  return true;
}

}  // namespace millrace::detail
