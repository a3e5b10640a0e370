// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/arn.hpp>

namespace millrace::s3 {

MILLRACE_INLINE std::optional<arn> arn::parse(std::string_view text) noexcept {
  std::string_view parts[5];
  for (std::string_view& part : parts) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    part = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  if (parts[0] != "arn" || parts[1].empty() || parts[2].empty() || text.empty()) return std::nullopt;
  return arn{parts[1], parts[2], parts[3], parts[4], text};
}

MILLRACE_INLINE std::optional<std::string_view> arn::resource_part(std::size_t n) const noexcept {
  std::string_view rest = resource;
  while (true) {
    const std::size_t end = rest.find_first_of(":/");
    if (n == 0) return rest.substr(0, end);
    if (end == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(end + 1);
    --n;
  }
}

}  // namespace millrace::s3
