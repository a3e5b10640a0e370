// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// S3 refused a request, or answered something that cannot be an answer to it.
///
/// what() reads "s3://bucket/key at byte 0: 403 AccessDenied: Access Denied (request id 9C7D5181867045BB)": the
/// server's own words, and nothing of the request but the object's name. If the answer is not S3's, it has the server's
/// address and the first line.
class error : public millrace::error {
 public:
  /// `status` is the HTTP status, 0 when there was no answer; `code` and `message` are S3's own and may be empty.
  error(int status, std::string code, std::string message, std::string request_id, where at = where(),
        std::optional<duration> pause = std::nullopt);

  /// HTTP status; 200 for an error document in an answer that began as a success.
  int status() const noexcept { return status_; }
  /// S3's error code, `NoSuchKey`; empty when the answer had none (a proxy's page). The answer to a HEAD has no body:
  /// its code is by the status, if it has a field of S3's (`x-amz-request-id`).
  const std::string& code() const noexcept { return code_; }
  /// The store's name for the request in its logs; may be empty.
  const std::string& request_id() const noexcept { return request_id_; }
  /// The pause that the store asked for before the next attempt, if it did.
  std::optional<duration> retry_after() const noexcept { return retry_after_; }

 private:
  static std::string describe(int status, const std::string& code, const std::string& message,
                              const std::string& request_id);

  int status_;
  std::string code_;
  std::string request_id_;
  std::optional<duration> retry_after_;
};

/// The bytes of an object are not those that its checksum is of: damaged on their way, or in the store. An object that
/// is read in one request has been read twice then; of one that is read in parts, all but the last bytes were delivered
/// before this could be known.
class checksum_error : public millrace::error {
 public:
  explicit checksum_error(std::string reason, where at = where(), std::uint64_t before = 0)
      : error(std::move(reason), std::move(at)), delivered_(before) {}

  /// Bytes from the beginning of the object that were delivered, any of which may be wrong.
  std::uint64_t delivered() const noexcept { return delivered_; }

 private:
  std::uint64_t delivered_;
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/error.ipp>
#endif
