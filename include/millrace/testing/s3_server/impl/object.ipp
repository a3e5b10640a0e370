// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/object.hpp>

namespace millrace::s3_server {

MILLRACE_INLINE std::string object::checksum(std::string_view name) const {
  for (const field& f : checksums) {
    if (f.first == name) return f.second;
  }
  return std::string();
}

MILLRACE_INLINE std::vector<bytes> object::range(std::uint64_t first, std::uint64_t length) const {
  std::vector<bytes> out;
  for (const bytes& piece : content) {
    if (length == 0) break;
    if (first >= piece.size()) {
      first -= piece.size();
      continue;
    }
    const std::uint64_t taken = std::min<std::uint64_t>(length, piece.size() - first);
    out.push_back(piece.slice(static_cast<std::size_t>(first), static_cast<std::size_t>(taken)));
    first = 0;
    length -= taken;
  }
  return out;
}

}  // namespace millrace::s3_server
