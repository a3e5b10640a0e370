// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <millrace/testing/s3_server/options.hpp>
#include <millrace/testing/s3_server/reply.hpp>
#include <millrace/testing/s3_server/request.hpp>
#include <millrace/testing/s3_server/store.hpp>

namespace millrace::s3_server::detail {

inline constexpr std::string_view s3_namespace = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

/// Continuation tokens are opaque to clients: the position in hexadecimal, "p" for a rolled-up prefix.
inline std::string write_token(const list_position& at) { return (at.prefix ? 'p' : 'k') + to_hex(at.text); }

/// ListObjectsV2.
reply list_objects(store& s, const request& r, const options& o);

reply create_bucket(store& s, const request& r);

reply head_bucket(store& s, const request& r, const options& o);

reply bucket_location(store& s, const request& r, const options& o);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/bucket_requests.ipp>
#endif
