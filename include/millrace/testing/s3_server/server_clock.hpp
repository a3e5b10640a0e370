// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <time.h>

namespace millrace::s3_server {

/// The wall clock of a server: the machine's, moved by an offset that may be changed while the server runs.
class server_clock {
 public:
  explicit server_clock(std::int64_t offset_seconds = 0) noexcept : offset_(offset_seconds) {}

  /// Unix time in seconds.
  std::int64_t now() const noexcept {
    return static_cast<std::int64_t>(::time(nullptr)) + offset_.load(std::memory_order_relaxed);
  }
  void set_offset(std::int64_t seconds) noexcept { offset_.store(seconds, std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> offset_;
};

}  // namespace millrace::s3_server
