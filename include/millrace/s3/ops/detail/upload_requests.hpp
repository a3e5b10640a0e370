// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/ops/detail/cut_parts.hpp>
#include <millrace/s3/ops/detail/put_plan.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/wire/detail/upload_documents.hpp>

namespace millrace::s3::detail {

/// One attempt at a request whose answer says nothing but that it was carried out.
MILLRACE_COROUTINE task<void> discard_once(const session& s, const operation& op);

inline void add_checksum(operation& op, const std::string& sum) {
  if (!sum.empty()) op.fields.add("x-amz-checksum-crc32c", sum);
}

inline void add_fields(operation& op, const http::headers& fields) {
  for (const auto& [name, value] : fields) op.fields.add(name, value);
}

/// PutObject: the whole object in one request. Gives the ETag.
MILLRACE_COROUTINE task<std::string> store_whole(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                 bytes body, const put_plan& plan);

/// UploadPart.
MILLRACE_COROUTINE task<stored_part> store_part(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                std::string id, object_chunk chunk, bool checksums);

/// CreateMultipartUpload; gives the id.
MILLRACE_COROUTINE task<std::string> create_upload(std::shared_ptr<const session> s, std::string bucket,
                                                   std::string key, const put_plan& plan);

/// CompleteMultipartUpload; gives the ETag.
MILLRACE_COROUTINE task<std::string> complete_upload(std::shared_ptr<const session> s, std::string bucket,
                                                     std::string key, std::string id, std::vector<stored_part> parts,
                                                     bool only_new);

/// AbortMultipartUpload; an upload that is not there any more is fine.
MILLRACE_COROUTINE task<void> abort_upload(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                           std::string id);

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/detail/impl/upload_requests.ipp>
#endif
