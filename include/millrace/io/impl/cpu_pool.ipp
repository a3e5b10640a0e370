// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <millrace/base/compiler.hpp>
#include <millrace/io/cpu_pool.hpp>

namespace millrace {

MILLRACE_INLINE cpu_pool::cpu_pool(unsigned threads) {
  if (threads == 0) threads = usable_cores();
  threads_.reserve(threads);
  try {
    while (threads_.size() < threads) {
      threads_.emplace_back("millrace-pool", [state = state_.get()] { state->work(); });
    }
  } catch (...) {
    join();
    throw;
  }
}

MILLRACE_INLINE unsigned cpu_pool::usable_cores() noexcept {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  const long all = ::sysconf(_SC_NPROCESSORS_ONLN);  // more cores than a cpu_set_t has room for
  return all < 1 ? 1 : static_cast<unsigned>(all);
}

}  // namespace millrace
