// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/config/profile.hpp>

namespace millrace::s3 {

MILLRACE_INLINE std::optional<std::string_view> profile::find(std::string_view name) const noexcept {
  const auto found = properties_.find(name);
  if (found == properties_.end()) return std::nullopt;
  return std::string_view(found->second);
}

MILLRACE_INLINE std::optional<std::string_view> profile::find(std::string_view property,
                                                              std::string_view name) const noexcept {
  std::optional<std::string_view> result;
  std::string_view rest = find(property).value_or(std::string_view());
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos && trimmed(line.substr(0, equals)) == name) {
      result = trimmed(line.substr(equals + 1));
    }
  }
  return result;
}

MILLRACE_INLINE std::string_view profile::trimmed(std::string_view text) noexcept {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace millrace::s3
