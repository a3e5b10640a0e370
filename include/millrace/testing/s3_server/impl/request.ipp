// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/request.hpp>

namespace millrace::s3_server {

MILLRACE_INLINE const std::string* request::field(std::string_view name) const noexcept {
  for (const pair& f : fields) {
    if (f.first == name) return &f.second;
  }
  return nullptr;
}

MILLRACE_INLINE std::size_t request::count(std::string_view name) const noexcept {
  std::size_t n = 0;
  for (const pair& f : fields) n += f.first == name ? 1U : 0U;
  return n;
}

MILLRACE_INLINE const std::string* request::parameter_value(std::string_view name) const noexcept {
  for (const pair& p : query) {
    if (p.first == name) return &p.second;
  }
  return nullptr;
}

}  // namespace millrace::s3_server
