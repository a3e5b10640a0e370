// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <millrace/testing/s3_server/fault.hpp>
#include <millrace/testing/s3_server/message.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

/// One served request, for a test to look at. Holds no signature, no token and no access key.
class logged_request {
 public:
  logged_request() = default;
  logged_request(const request& r, int answered, fault::kind what_went_wrong);

  std::string method;
  std::string bucket;
  std::string key;
  std::string query;  ///< decoded `name=value` joined by `&`, without X-Amz-*
  std::string range;
  std::string if_match;
  std::string payload;  ///< as signed: a SHA-256 in hexadecimal digits, or UNSIGNED-PAYLOAD
  int status = 0;       ///< as decided; whether it arrived is the fault's business
  s3_server::fault::kind fault = s3_server::fault::kind::none;
  std::uint64_t connection = 0;  ///< number of the connection, from 1
};

/// The requests of a server in the order in which they were answered. Thread-safe. Keeps the first `limit`, counts the
/// rest.
class request_log {
 public:
  explicit request_log(std::size_t limit) : limit_(limit) {}

  void add(logged_request r);
  std::vector<logged_request> entries() const {
    std::lock_guard lock(mutex_);
    return entries_;
  }
  /// The number of all requests, including those not kept.
  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return count_;
  }
  void clear();
  /// From now on adds 1 to this eventfd (eventfd(2)) after each request, so that a test can poll() for it; -1: no
  /// longer. The descriptor is the caller's, who ends this before closing it.
  void notify(int descriptor) {
    std::lock_guard lock(mutex_);
    notified_ = descriptor;
  }

 private:
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::vector<logged_request> entries_;
  std::size_t count_ = 0;
  int notified_ = -1;
};

/// Counts of a server. Written by its loop, readable from any thread.
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

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline logged_request::logged_request(const request& r, int answered, fault::kind what_went_wrong)
    : method(r.method),
      bucket(r.bucket),
      key(r.key),
      status(answered),
      fault(what_went_wrong),
      connection(r.connection) {
  if (const std::string* value = r.field("range")) range = *value;
  if (const std::string* value = r.field("if-match")) if_match = *value;
  if (const std::string* value = r.field("x-amz-content-sha256")) payload = *value;
  for (const auto& [name, value] : r.query) {
    if (name.compare(0, 6, "X-Amz-") != 0) query += (query.empty() ? "" : "&") + name + '=' + value;
  }
}

inline void request_log::add(logged_request r) {
  std::lock_guard lock(mutex_);
  ++count_;
  if (entries_.size() < limit_) entries_.push_back(std::move(r));
  const std::uint64_t one = 1;
  // It fails after 2^64 requests that were not read.
  if (notified_ >= 0) static_cast<void>(::write(notified_, &one, sizeof one) < 0);
}

inline void request_log::clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
  count_ = 0;
}

inline void statistics::request_begins() noexcept {
  requests.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t now = in_flight.fetch_add(1, std::memory_order_relaxed) + 1;
  if (now > peak_in_flight.load(std::memory_order_relaxed)) peak_in_flight.store(now, std::memory_order_relaxed);
}

}  // namespace millrace::s3_server
