// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

/// Whether a defect is in the library, by its name in defects.py: that of the environment's MILLRACE_DEFECT.
inline bool millrace_planted(std::string_view name) {
  static const char* const now = std::getenv("MILLRACE_DEFECT");
  return now != nullptr && name == now;
}
