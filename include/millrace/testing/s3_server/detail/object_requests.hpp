// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <millrace/testing/s3_server/options.hpp>
#include <millrace/testing/s3_server/reply.hpp>
#include <millrace/testing/s3_server/request.hpp>
#include <millrace/testing/s3_server/store.hpp>

namespace millrace::s3_server::detail {

/// GetObject and HeadObject.
reply get_object(store& s, const request& r);

/// HeadObject of one part of the upload that made an object; one that came in one request has one part.
reply head_part(store& s, const request& r);

/// The fields of a PUT that belong to the object.
std::vector<object::field> kept_fields(const request& r);

bool only_if_new(const request& r);

reply put_object(store& s, const request& r, std::vector<object::field> checksums);

reply delete_object(store& s, const request& r);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/object_requests.ipp>
#endif
