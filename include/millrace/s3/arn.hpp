// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::s3 {

/// The parts of `arn:partition:service:region:account:resource`, an Amazon resource name. Views of the parsed text.
struct arn {
  std::string_view partition;
  std::string_view service;
  std::string_view region;   ///< may be empty
  std::string_view account;  ///< may be empty
  std::string_view resource;

  /// Nothing when `text` has not six parts, does not start with `arn`, or lacks partition, service or resource.
  template <class = void>
  static std::optional<arn> parse(std::string_view text) noexcept {
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

  /// The n-th component of the resource, between `:` or `/`; nothing behind the last one.
  template <class = void>
  std::optional<std::string_view> resource_part(std::size_t n) const noexcept {
    std::string_view rest = resource;
    while (true) {
      const std::size_t end = rest.find_first_of(":/");
      if (n == 0) return rest.substr(0, end);
      if (end == std::string_view::npos) return std::nullopt;
      rest.remove_prefix(end + 1);
      --n;
    }
  }
};

}  // namespace millrace::s3
