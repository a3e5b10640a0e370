// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace millrace::s3::detail {

/// True for what text::append_encoded_path() writes: S3 decodes the path of a request, encodes it so and signs that.
/// Any other spelling of the same path would be refused as a wrong signature.
bool is_encoded_path(std::string_view path) noexcept;

/// Removes empty, `.` and `..` segments the way the services other than S3 sign paths; a slash at the end stays.
/// Never used for S3, where `a//b` and `a/../b` are keys of their own.
std::string normalized_path(std::string_view path);

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/sign/detail/impl/canonical_path.ipp>
#endif
