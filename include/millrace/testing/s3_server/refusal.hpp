// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace millrace::s3_server {

/// A request that is answered with one of S3's errors: thrown by whatever judges it, sent as the error document.
class refusal {
 public:
  refusal(int http_status, std::string error_code, std::string error_message)
      : status(http_status), code(std::move(error_code)), message(std::move(error_message)) {}

  /// One more element of the document ("Region", "ServerTime").
  refusal with(std::string name, std::string value) && {
    details.emplace_back(std::move(name), std::move(value));
    return std::move(*this);
  }
  /// One more field of the answer.
  refusal header(std::string name, std::string value) && {
    fields.emplace_back(std::move(name), std::move(value));
    return std::move(*this);
  }

  /// The body of the answer, as S3 writes it.
  std::string document(const std::string& resource, const std::string& request_id) const;

  int status;
  std::string code;
  std::string message;
  std::vector<std::pair<std::string, std::string>> details;
  std::vector<std::pair<std::string, std::string>> fields;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/impl/refusal.ipp>
#endif
