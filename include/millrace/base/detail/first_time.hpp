// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace millrace::detail {

/// The lines that this process has said, by their hashes; 0 is a free place. The one thing that pipelines of a process
/// share unasked: constant-initialized, and never destroyed, as a loop may still speak while the program ends.
inline constinit std::atomic<std::uint64_t> lines_said[64]{};

/// Whether this process says `line` for the first time. For what is true of the process rather than of one pipeline: a
/// training makes a pipeline for every epoch, and its log shall not hold the same line a thousand times. Threads may
/// ask at once; one of them is told yes. When all places are taken the answer is always yes: rather twice than never.
template <class = void>
bool first_time(std::string_view line) noexcept {
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
