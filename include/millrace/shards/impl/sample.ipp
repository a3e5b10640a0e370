// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace {

MILLRACE_INLINE const bytes* sample::find(std::string_view extension) const noexcept {
  for (const field& f : fields) {
    if (f.extension == extension) return &f.data;
  }
  return nullptr;
}

MILLRACE_INLINE const bytes& sample::operator[](std::string_view extension) const {
  if (const bytes* data = find(extension)) return *data;
  std::string has;
  for (const field& f : fields) has += (has.empty() ? "" : ", ") + f.extension;
  throw decode_error("the sample has no field \"" + std::string(extension) + "\" (it has: " + has + ")",
                     from.at(key));
}

MILLRACE_INLINE std::size_t byte_size(const sample& s) noexcept {
  std::size_t total = s.key.size();
  for (const field& f : s.fields) total += f.data.size();
  return total;
}

}  // namespace millrace
