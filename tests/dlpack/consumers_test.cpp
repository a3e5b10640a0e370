// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/compiler.hpp>

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "test_data_default.hpp"
#include "tests/support/catch.hpp"

namespace {

constexpr bool sanitized = MILLRACE_ASAN || MILLRACE_TSAN;

/// The exit status of consumers.py, by whichever Python has the consumer; 77 without.
int consume(const std::string& consumer) {
  const std::string script = std::string(MILLRACE_TEST_SOURCE_DIR) + "/tests/dlpack/consumers.py";
  int status = 77;
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const std::string command = std::string(python) + " '" + script + "' '" MILLRACE_TEST_BATCH_LIBRARY "' " + consumer;
    const int result = std::system(command.c_str());
    status = WIFEXITED(result) ? WEXITSTATUS(result) : -1;
    if (status == 127) status = 77;
    if (status != 77) break;
  }
  return status;
}

}  // namespace

TEST_CASE("NumPy takes tensors and gives some without a copy", "[dlpack]") {
  if (sanitized) MILLRACE_SKIP("Python does not load libraries with sanitizers");
  const int status = consume("numpy");
  if (status == 77) MILLRACE_SKIP("NumPy 1.23 is not installed (Debian: python3-numpy)");
  CHECK(status == 0);
}

TEST_CASE("PyTorch takes tensors and gives some without a copy", "[dlpack][slow]") {
  if (sanitized) MILLRACE_SKIP("Python does not load libraries with sanitizers");
  const int status = consume("torch");
  if (status == 77) MILLRACE_SKIP("PyTorch is not installed (Debian: python3-torch)");
  CHECK(status == 0);
}
