// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/zip_directory.hpp>

namespace millrace::tar::detail {

MILLRACE_INLINE void zip_directory::feed(std::string_view piece) {
  if (ended_) return;
  text_.append(piece.data(), piece.size());
  std::size_t at = 0;
  while (text_.size() - at >= record_bytes) {
    const std::string_view record = std::string_view(text_).substr(at);
    if (record.substr(0, 4) != "PK\x01\x02") {
      ended_ = true;
      break;
    }
    const std::size_t size = record_bytes + number(record, 28) + number(record, 30) + number(record, 32);
    if (record.size() < size) break;
    at += size;
    ++records_;
  }
  text_.erase(0, at);
}

MILLRACE_INLINE bool zip_directory::complete() const noexcept {
  const std::string_view rest = text_;
  if (rest.size() < end_bytes) return false;
  return rest.substr(0, 4) == "PK\x05\x06" ||  // or its 64-bit form
         rest.substr(0, 4) == "PK\x06\x06";
}

}  // namespace millrace::tar::detail
