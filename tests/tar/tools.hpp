// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace millrace::test {

/// Whether a shell command ends well. Its output goes nowhere unless it is redirected.
inline bool shell(const std::string& command) { return std::system(("(" + command + ") 2>/dev/null").c_str()) == 0; }

inline bool have_tool(const std::string& name) { return shell("command -v " + name + " >/dev/null"); }

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace millrace::test
