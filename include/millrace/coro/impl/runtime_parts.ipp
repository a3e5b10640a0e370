// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/runtime_parts.hpp>

namespace millrace {

MILLRACE_INLINE void detail::say(const executor& ex, const std::string& line) {
  if (ex.runtime() != nullptr) {
    ex.runtime()->say(line.c_str());
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace millrace
