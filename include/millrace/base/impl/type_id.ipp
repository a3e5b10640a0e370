// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include <millrace/base/compiler.hpp>
#include <millrace/base/type_id.hpp>

namespace millrace {

MILLRACE_INLINE bool type_id::is_unique(const char* text) noexcept {
  const char* const type = std::strstr(text, "T = ");
  for (const char* const part : {"{anonymous}", "(anonymous", "<lambda", "(lambda", ")::"}) {
    if (type == nullptr || std::strstr(type, part) != nullptr) return false;
  }
  return true;
}

}  // namespace millrace
