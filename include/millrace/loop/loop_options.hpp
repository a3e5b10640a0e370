// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace millrace {

/// Options of make_event_loop().
struct loop_options {
  /// Submission entries of the ring: how much goes to the kernel in one call.
  unsigned ring_entries = 256;
  /// Completion entries of the ring: how much may be under way at once (watches beyond half of it move to an epoll set,
  /// file operations beyond a third of it wait in the loop). Rounded up to a power of two, 16 at least.
  unsigned completion_entries = 4096;
  /// Uses epoll even where io_uring works.
  bool force_epoll = false;
  /// Told in one line, once per loop (once for a runtime), that io_uring is refused here and epoll serves instead.
  /// By default the line goes to standard error, once in a process. Called during make_event_loop().
  void (*log)(void* context, const char* line) = nullptr;
  void* log_context = nullptr;
  /// For tests of the fallback: when not 0, the ring counts as refused with this errno value.
  int pretend_ring_error = 0;
};

}  // namespace millrace
