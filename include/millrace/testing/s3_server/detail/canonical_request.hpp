// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <millrace/testing/s3_server/request.hpp>

namespace millrace::s3_server::detail {

/// The query as SigV4 sorts it, without the signature.
std::string canonical_query(const request& r);

/// A value with runs of blanks made one.
std::string collapsed(std::string_view value);

/// The canonical request of SigV4 for S3 (one encoding, no normalisation) over the named header fields.
std::string canonical_request(const request& r, const std::vector<std::string_view>& signed_names,
                              std::string_view payload);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/canonical_request.ipp>
#endif
