// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <millrace/testing/s3_server/object.hpp>
#include <millrace/testing/s3_server/options.hpp>
#include <millrace/testing/s3_server/reply.hpp>
#include <millrace/testing/s3_server/request.hpp>
#include <millrace/testing/s3_server/store.hpp>

namespace millrace::s3_server::detail {

/// CreateMultipartUpload.
reply start_upload(store& s, const request& r, const options& o);

std::uint64_t part_number(const std::string* text);

/// UploadPart.
reply put_part(store& s, const request& r, const std::vector<object::field>& checksums);

reply abort_upload(store& s, const request& r);

/// ListParts.
reply list_parts(store& s, const request& r);

/// ListMultipartUploads: all of them on one page.
reply list_uploads(store& s, const request& r);

/// CompleteMultipartUpload.
reply complete_upload(store& s, const request& r, const options& o);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/upload_requests.ipp>
#endif
