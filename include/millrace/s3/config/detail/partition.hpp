// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace millrace::s3::detail {

/// A separate AWS: its own accounts, ARNs and domain.
struct partition {
  std::string_view name;
  std::string_view dns_suffix;
};

/// The partition of a region, told by its prefix; regions that nobody has heard of are of the main one.
partition partition_of(std::string_view region) noexcept;

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/detail/impl/partition.ipp>
#endif
