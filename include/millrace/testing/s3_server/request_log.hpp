// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <millrace/testing/s3_server/fault.hpp>
#include <millrace/testing/s3_server/request.hpp>

namespace millrace::s3_server {

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
  /// Of all requests, those that were not kept too.
  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return count_;
  }
  void clear();

 private:
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::vector<logged_request> entries_;
  std::size_t count_ = 0;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/impl/request_log.ipp>
#endif
