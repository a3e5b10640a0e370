// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/data/origin.hpp>

namespace millrace {

MILLRACE_INLINE where origin::at(std::string key) const {
  where w;
  if (from != nullptr) {
    w.object = from->shown();
    w.offset = offset;
  }
  w.key = std::move(key);
  return w;
}

}  // namespace millrace
