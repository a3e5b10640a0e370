// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include <millrace/s3/client.hpp>
#include <millrace/testing/s3_server/background.hpp>

namespace millrace::test {

/// A client of the server that compares checksums, or does not, and tries again without waiting.
inline s3::client checking_client(const s3_server::background& server, bool validate = true) {
  const std::string endpoint = server.endpoint();  // the options do not keep it
  s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  o.validate_checksums = validate;
  o.max_attempts = 6;  // which requests meet the faults is a matter of time: one part may meet them all
  o.retry.base = std::chrono::microseconds(10);
  return s3::client(s3::config(o), s3::credentials("test-key", "test-secret"));
}

}  // namespace millrace::test
