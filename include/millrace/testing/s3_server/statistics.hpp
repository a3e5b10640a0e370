// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace millrace::s3_server {

/// What a server counts. Written by its loop, readable from any thread.
class statistics {
 public:
  using counter = std::atomic<std::uint64_t>;

  counter connections{0};       ///< accepted so far
  counter open_connections{0};  ///< now
  counter requests{0};          ///< heads received
  counter bytes_sent{0};        ///< of answers, heads included, as handed to the kernel (to TLS)
  counter in_flight{0};         ///< requests between their head and the end of their answer
  counter peak_in_flight{0};

  void request_begins() noexcept;
  void request_ends() noexcept { in_flight.fetch_sub(1, std::memory_order_relaxed); }
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/impl/statistics.ipp>
#endif
