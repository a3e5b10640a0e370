// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/where.hpp>
#include <millrace/s3/wire/detail/xml_reader.hpp>

namespace millrace::s3::detail {

/// A part that the store has.
class stored_part {
 public:
  stored_part(std::uint64_t part_number, std::string tag, std::string sum)
      : number(part_number), etag(std::move(tag)), checksum(std::move(sum)) {}

  std::uint64_t number;
  std::string etag;      ///< quotes included
  std::string checksum;  ///< CRC-32C as S3 writes it; empty when the store has none
};

/// The value of x-amz-checksum-crc32c: base64 of the big-endian CRC.
std::string crc32c_value(std::string_view data);

/// The body of CompleteMultipartUpload.
std::string complete_document(const std::vector<stored_part>& parts);

/// The ETag that an object made of these parts has at stores whose ETags are MD5 sums: the MD5 of the parts' MD5s, and
/// their number. Empty where the parts' ETags are something else.
std::string composite_etag(const std::vector<stored_part>& parts);

/// Keeps the text of one element.
class element_handler final : public xml_handler {
 public:
  explicit element_handler(std::string_view path) noexcept : path_(path) {}
  void leaf(std::string_view path, const std::string& text) override {
    if (path == path_) value = text;
  }
  std::string value;

 private:
  std::string_view path_;
};

/// The text of the element `path` in an answer that began as a success. S3 sends the status before it knows how the
/// request ends: an error document in its place, a document that lacks the element, or none at all is an s3::error with
/// the status 200.
std::string element_of(std::string_view body, std::string_view path, where at);

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/wire/detail/impl/upload_documents.ipp>
#endif
