// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/background.hpp>

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "test_data_default.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

namespace {

namespace s3_server = millrace::s3_server;

/// The exit status of the script against that server; 127 without Python.
int run_boto3(const s3_server::background& server) {
  const std::string folder = std::string(MILLRACE_TEST_SOURCE_DIR) + "/tests/s3_server";
  const std::string command = "python3 '" + folder + "/boto3_client.py' " + server.endpoint() +
                              " test-key test-secret " + server.certificate_file() + " > /dev/null";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("boto3 lists, reads, writes, uploads in parts and presigns", "[slow]") {
  s3_server::background server;
  const int status = run_boto3(server);
  if (status == 77 || status == 127) MILLRACE_SKIP("boto3 is not installed");
  CHECK(status == 0);
  CHECK(server.objects().open_uploads() == 0);
}

TEST_CASE("boto3 over TLS, with checksums in the trailer", "[slow]") {
  s3_server::options o;
  o.tls.enabled = true;
  s3_server::background server(o);
  const int status = run_boto3(server);
  if (status == 77 || status == 127) MILLRACE_SKIP("boto3 is not installed");
  CHECK(status == 0);
}

}  // namespace
