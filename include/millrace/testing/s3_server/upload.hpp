// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/testing/s3_server/object.hpp>

namespace millrace::s3_server {

/// A multipart upload that is neither completed nor aborted.
class upload {
 public:
  upload() = default;
  upload(std::string in_bucket, std::string of_key, std::vector<object::field> object_fields)
      : bucket(std::move(in_bucket)), key(std::move(of_key)), fields(std::move(object_fields)) {}

  /// What a client says to be a part: number, ETag (with or without quotes) and checksum (empty: none given).
  class claim {
   public:
    std::uint64_t number = 0;
    std::string etag;
    std::string checksum;
  };
  using part_list = std::vector<claim>;

  std::string bucket;
  std::string key;
  std::vector<object::field> fields;
  std::string algorithm;   ///< of the checksum that every part must have ("crc32c"); empty: none
  bool composite = false;  ///< the object's checksum is that of the parts' checksums, which are to be listed
  std::map<std::uint64_t, std::shared_ptr<const object>> parts;

  /// The name of the field with the checksum of a part.
  std::string checksum_field() const { return "x-amz-checksum-" + algorithm; }

  /// The object made of `wanted`; throws refusal. The ETag is the MD5 of the parts' MD5s and their number, as S3's.
  object assemble(const part_list& wanted, std::uint64_t min_part_size) const;

 private:
  void check(const claim& wanted, const object& part) const;
  static std::string unquoted(const std::string& tag) {
    return tag.size() >= 2 && tag.front() == '"' && tag.back() == '"' ? tag.substr(1, tag.size() - 2) : tag;
  }
  static std::string from_hex(const std::string& hex);
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/impl/upload.ipp>
#endif
