// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/text/ascii.hpp>

namespace millrace::text {

MILLRACE_INLINE std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = to_lower(c);
  return lower;
}

}  // namespace millrace::text
