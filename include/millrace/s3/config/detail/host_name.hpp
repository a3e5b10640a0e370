// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace millrace::s3::detail {

/// One label of a host name: letters, digits and inner hyphens, 1 to 63 of them.
bool is_host_label(std::string_view text) noexcept;

/// Labels with dots between them. Whatever goes into a host name or a signing scope is checked with this before.
bool is_host_labels(std::string_view text) noexcept;

/// Four decimal numbers from 0 to 255.
bool is_ipv4(std::string_view text) noexcept;

/// True when a bucket's name may be put in front of a host name. Names with dots may only where no TLS certificate has
/// to match: a wildcard covers one label.
bool is_virtual_hostable_bucket(std::string_view bucket, bool allow_dots) noexcept;

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/detail/impl/host_name.ipp>
#endif
