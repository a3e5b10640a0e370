// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/memory/bytes.hpp>
#include <millrace/testing/s3_server/detail/digest.hpp>

namespace millrace::s3_server {

/// One object of a store; never changed once it is stored. The content is a list of slices, shared by every answer that
/// is on its way.
class object {
 public:
  using field = std::pair<std::string, std::string>;

  object() = default;
  /// The ETag is the quoted MD5 of the content unless one is given.
  explicit object(bytes whole, std::string tag = std::string()) : size(whole.size()), etag(std::move(tag)) {
    if (etag.empty()) etag = '"' + detail::to_hex(detail::digest_of("MD5", whole.view())) + '"';
    if (!whole.empty()) content.push_back(std::move(whole));
  }

  std::vector<bytes> content;
  std::uint64_t size = 0;
  std::string etag;              ///< with its quotes
  std::int64_t modified = 0;     ///< Unix time
  std::vector<field> fields;     ///< Content-Type, x-amz-meta-*, ...: sent with every answer
  std::vector<field> checksums;  ///< x-amz-checksum-*: sent when they are asked for

  std::vector<std::uint64_t> parts;  ///< sizes of those of the upload that made it; empty: it came in one request

  /// The checksum with that field name; empty when there is none.
  std::string checksum(std::string_view name) const;

  /// The slices of [first, first + length), sharing the memory. The range must lie inside.
  std::vector<bytes> range(std::uint64_t first, std::uint64_t length) const;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/impl/object.ipp>
#endif
