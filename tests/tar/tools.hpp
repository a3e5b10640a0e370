// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include <unistd.h>

namespace millrace::test {

/// A folder that goes with its contents.
class temporary_folder {
 public:
  temporary_folder() {
    std::string pattern = (std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/tmp");
    pattern += "/millrace_tar_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    path_ = pattern;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    if (std::system(("rm -rf '" + path_ + "'").c_str()) != 0) std::perror("rm");
  }

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Whether a shell command ends well. Its output goes nowhere unless it is redirected.
inline bool shell(const std::string& command) { return std::system(("(" + command + ") 2>/dev/null").c_str()) == 0; }

inline bool have_tool(const std::string& name) { return shell("command -v " + name + " >/dev/null"); }

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace millrace::test
