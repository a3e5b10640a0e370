// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

namespace millrace::test {

/// A folder that goes with its contents.
class temporary_folder {
 public:
  explicit temporary_folder(const std::string& parent = default_parent()) : path_(parent + "/millrace-test-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    const auto remove = [](const char* name, const struct ::stat*, int, struct ::FTW*) { return std::remove(name); };
    if (::nftw(path_.c_str(), remove, 16, FTW_DEPTH | FTW_PHYS) != 0) std::perror(path_.c_str());
  }

  const std::string& path() const noexcept { return path_; }
  /// The path of a file in it; with contents it is written.
  std::string file(const std::string& name) const { return path_ + '/' + name; }
  std::string file(const std::string& name, const std::string& contents) const {
    const std::string at = file(name);
    std::ofstream(at, std::ios::binary) << contents;
    return at;
  }

 private:
  static std::string default_parent() {
    const char* const set = std::getenv("TMPDIR");
    return set == nullptr ? "/tmp" : set;
  }

  std::string path_;
};

}  // namespace millrace::test
