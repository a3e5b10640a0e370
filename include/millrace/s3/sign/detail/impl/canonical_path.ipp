// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/sign/detail/canonical_path.hpp>
#include <millrace/text/hex.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE bool is_encoded_path(std::string_view path) noexcept {
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (text::detail::is_unreserved(path[i]) || path[i] == '/') continue;
    if (path[i] != '%' || path.size() - i < 3 || path[i + 1] >= 'a' || path[i + 2] >= 'a') return false;
    const int high = text::hex_digit(path[i + 1]);
    const int low = text::hex_digit(path[i + 2]);
    if (high < 0 || low < 0 || text::detail::is_unreserved(static_cast<char>(high * 16 + low))) return false;
    i += 2;
  }
  return true;
}

MILLRACE_INLINE std::string normalized_path(std::string_view path) {
  std::string out;
  std::size_t at = 0;
  while (at < path.size()) {
    const std::size_t begin = path.find_first_not_of('/', at);
    if (begin == std::string_view::npos) break;
    std::size_t end = path.find('/', begin);
    if (end == std::string_view::npos) end = path.size();
    const std::string_view segment = path.substr(begin, end - begin);
    at = end;
    if (segment == ".") continue;
    if (segment == "..") {
      const std::size_t parent = out.rfind('/');
      out.erase(parent == std::string::npos ? 0 : parent);
      continue;
    }
    out += '/';
    out += segment;
  }
  if (out.empty() || (!path.empty() && path.back() == '/')) out += '/';
  return out;
}

}  // namespace millrace::s3::detail
