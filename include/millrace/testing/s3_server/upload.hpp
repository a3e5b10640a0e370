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
#include <millrace/testing/s3_server/refusal.hpp>

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
  object assemble(const part_list& wanted, std::uint64_t min_part_size) const {
    if (wanted.empty()) throw refusal(400, "MalformedXML", "the upload is completed with no part");
    object whole;
    std::string sums;
    std::string checksums;
    for (std::size_t i = 1; i < wanted.size(); ++i) {
      if (wanted[i].number <= wanted[i - 1].number) {
        throw refusal(400, "InvalidPartOrder", "the list of parts is not in ascending order");
      }
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::uint64_t number = wanted[i].number;
      const auto found = parts.find(number);
      if (found == parts.end() || unquoted(found->second->etag) != unquoted(wanted[i].etag)) {
        throw refusal(400, "InvalidPart", "part " + std::to_string(number) + " is not there, or its ETag differs");
      }
      const object& part = *found->second;
      if (i + 1 < wanted.size() && part.size < min_part_size) {
        throw refusal(400, "EntityTooSmall", "part " + std::to_string(number) + " is smaller than the minimum")
            .with("ProposedSize", std::to_string(part.size))
            .with("MinSizeAllowed", std::to_string(min_part_size))
            .with("PartNumber", std::to_string(number));
      }
      check(wanted[i], part);
      for (const bytes& piece : part.content) whole.content.push_back(piece);
      whole.size += part.size;
      whole.parts.push_back(part.size);
      sums += from_hex(unquoted(part.etag));
      if (composite) checksums += detail::from_base64(part.checksum(checksum_field()));
    }
    whole.etag = '"' + detail::to_hex(detail::digest_of("MD5", sums)) + '-' + std::to_string(wanted.size()) + '"';
    if (composite) {
      whole.checksums.emplace_back(checksum_field(), detail::to_base64(detail::checksum_of(algorithm, checksums)) +
                                                         '-' + std::to_string(wanted.size()));
      whole.checksums.emplace_back("x-amz-checksum-type", "COMPOSITE");
    } else if (!algorithm.empty()) {
      std::string content;
      for (const bytes& piece : whole.content) content += piece.view();
      whole.checksums.emplace_back(checksum_field(), detail::to_base64(detail::checksum_of(algorithm, content)));
    }
    whole.fields = fields;
    return whole;
  }

 private:
  void check(const claim& wanted, const object& part) const {
    if (algorithm.empty()) return;
    if (composite && wanted.checksum.empty()) {
      throw refusal(400, "InvalidRequest",
                    "the upload was created with a checksum, which is missing for part " +
                        std::to_string(wanted.number) + " in the list of parts");
    }
    if (!wanted.checksum.empty() && wanted.checksum != part.checksum(checksum_field())) {
      throw refusal(400, "InvalidPart", "the checksum of part " + std::to_string(wanted.number) + " differs");
    }
  }
  static std::string unquoted(const std::string& tag) {
    return tag.size() >= 2 && tag.front() == '"' && tag.back() == '"' ? tag.substr(1, tag.size() - 2) : tag;
  }
  static std::string from_hex(const std::string& hex) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    std::string out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
      out += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
    }
    return out;
  }
};

}  // namespace millrace::s3_server
