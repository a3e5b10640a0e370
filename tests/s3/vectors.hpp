// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include <millrace/base/environment.hpp>

#include "tests/support/test_data.hpp"

namespace millrace::test {

using json = nlohmann::json;

inline json read_json(const std::string& path) { return json::parse(read_file(path)); }

/// Names in a folder, sorted, without those that start with a dot.
inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* open = ::opendir(folder.c_str());
  if (open == nullptr) throw std::runtime_error("cannot open " + folder);
  while (const dirent* entry = ::readdir(open)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

/// An environment made of a table. Keep the table alive as long as the environment.
using variables = std::map<std::string, std::string>;

inline const char* look_up(const variables& values, const char* name) {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : found->second.c_str();
}

inline environment environment_of(variables& table) {
  return environment(environment::getter::to<&look_up>(table));
}

}  // namespace millrace::test
