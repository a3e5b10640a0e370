// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
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

/// The output of a shell command, such as one that works on files in such a folder; as far as it came, if it fails.
inline std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char block[1 << 14];
  for (std::size_t n; (n = std::fread(block, 1, sizeof block, pipe)) != 0;) text.append(block, n);
  ::pclose(pipe);
  return text;
}

}  // namespace millrace::test
