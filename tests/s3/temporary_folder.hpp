// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace millrace::test {

/// A folder that goes with the test.
class temporary_folder {
 public:
  temporary_folder() {
    if (::mkdtemp(path_) == nullptr) throw std::runtime_error("mkdtemp");
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    for (const std::string& name : names_) ::unlink(name.c_str());
    ::rmdir(path_);
  }

  /// The path of a file, removed in the end; with contents it is written.
  std::string file(const std::string& name) {
    names_.push_back(std::string(path_) + "/" + name);
    return names_.back();
  }
  std::string file(const std::string& name, const std::string& contents) {
    const std::string at = file(name);
    std::ofstream(at) << contents;
    return at;
  }

 private:
  char path_[32] = "/tmp/millrace-test-XXXXXX";
  std::vector<std::string> names_;
};

}  // namespace millrace::test
