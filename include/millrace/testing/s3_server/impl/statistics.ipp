// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/statistics.hpp>

namespace millrace::s3_server {

MILLRACE_INLINE void statistics::request_begins() noexcept {
  requests.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t now = in_flight.fetch_add(1, std::memory_order_relaxed) + 1;
  if (now > peak_in_flight.load(std::memory_order_relaxed)) peak_in_flight.store(now, std::memory_order_relaxed);
}

}  // namespace millrace::s3_server
