// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::optional<std::string> environment::get(const char* name) const {
  const char* value = get_(name);
  if (value == nullptr) return std::nullopt;
  for (const char* c = value; *c != '\0'; ++c) {
    if (*c != ' ' && *c != '\t' && *c != '\r' && *c != '\n' && *c != '\v' && *c != '\f') return std::string(value);
  }
  return std::nullopt;
}

}  // namespace millrace
