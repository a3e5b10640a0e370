// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

namespace millrace::test {

/// A folder that goes, with the files named through it, at the end of the test.
class temporary_folder {
 public:
  explicit temporary_folder(const std::string& parent = default_parent()) : path_(parent + "/millrace-test-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    for (const std::string& f : files_) ::unlink(f.c_str());
    ::rmdir(path_.c_str());
  }

  const std::string& path() const noexcept { return path_; }
  std::string file(const std::string& name) {
    files_.push_back(path_ + "/" + name);
    return files_.back();
  }

 private:
  static std::string default_parent() {
    const char* set = std::getenv("TMPDIR");
    return set == nullptr ? "/tmp" : set;
  }
  std::string path_;
  std::vector<std::string> files_;
};

}  // namespace millrace::test
