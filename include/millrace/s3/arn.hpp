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
  static std::optional<arn> parse(std::string_view text) noexcept;

  /// The n-th component of the resource, between `:` or `/`; nothing behind the last one.
  std::optional<std::string_view> resource_part(std::size_t n) const noexcept;
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/impl/arn.ipp>
#endif
