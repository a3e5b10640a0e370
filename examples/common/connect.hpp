// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include <millrace/s3/client.hpp>
#include <millrace/testing/s3_server/background.hpp>

namespace examples {

/// The store to use: the environment's, or an S3 server inside this program.
inline millrace::s3::client connect(std::optional<millrace::s3_server::background>& server) {
  if (std::getenv("AWS_ENDPOINT_URL_S3") != nullptr) return millrace::s3::client::from_environment();
  server.emplace();
  const std::string endpoint = server->endpoint();
  millrace::s3::config_options options;
  options.endpoint = endpoint;
  std::printf("S3 server inside this program at %s\n", endpoint.c_str());
  return millrace::s3::client(millrace::s3::config(options), millrace::s3::credentials("test-key", "test-secret"));
}

}  // namespace examples
