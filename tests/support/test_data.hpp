// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#if __has_include("test_data_default.hpp")
#include "test_data_default.hpp"
#endif

namespace millrace::test {

/// The folder with the shared vectors: $MILLRACE_TEST_DATA, else what the build configured; empty when absent.
inline std::string test_data_folder() {
  const char* set = std::getenv("MILLRACE_TEST_DATA");
#ifdef MILLRACE_TEST_DATA_DEFAULT
  if (set == nullptr) set = MILLRACE_TEST_DATA_DEFAULT;
#endif
  struct stat s;
  if (set == nullptr || ::stat(set, &s) != 0 || !S_ISDIR(s.st_mode)) return std::string();
  return set;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path);
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace millrace::test
