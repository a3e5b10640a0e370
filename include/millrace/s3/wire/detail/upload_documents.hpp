// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/crc32c.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/wire/error_document.hpp>
#include <millrace/text/hex.hpp>

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
template <class = void>
std::string crc32c_value(std::string_view data) {
  const std::uint32_t crc = crc32c(0, data.data(), data.size());
  const unsigned char raw[4] = {static_cast<unsigned char>(crc >> 24), static_cast<unsigned char>(crc >> 16),
                                static_cast<unsigned char>(crc >> 8), static_cast<unsigned char>(crc)};
  unsigned char text[9];
  EVP_EncodeBlock(text, raw, 4);
  return std::string(reinterpret_cast<const char*>(text), 8);
}

/// The body of CompleteMultipartUpload.
template <class = void>
std::string complete_document(const std::vector<stored_part>& parts) {
  std::string text = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const stored_part& p : parts) {
    text += "<Part><PartNumber>";
    text += std::to_string(p.number);
    text += "</PartNumber><ETag>";
    for (char c : p.etag) {
      if (c == '"') {
        text += "&quot;";
      } else if (c == '&') {
        text += "&amp;";
      } else if (c == '<') {
        text += "&lt;";
      } else {
        text += c;
      }
    }
    text += "</ETag>";
    if (!p.checksum.empty()) text += "<ChecksumCRC32C>" + p.checksum + "</ChecksumCRC32C>";
    text += "</Part>";
  }
  text += "</CompleteMultipartUpload>";
  return text;
}

/// The ETag that an object made of these parts has at stores whose ETags are MD5 sums: the MD5 of the parts' MD5s, and
/// their number. Empty where the parts' ETags are something else.
template <class = void>
std::string composite_etag(const std::vector<stored_part>& parts) {
  std::string sums;
  for (const stored_part& p : parts) {
    std::string_view tag = p.etag;
    if (tag.size() != 34 || tag.front() != '"' || tag.back() != '"') return std::string();
    tag = tag.substr(1, 32);
    for (std::size_t i = 0; i < tag.size(); i += 2) {
      const int high = text::hex_digit(tag[i]);
      const int low = text::hex_digit(tag[i + 1]);
      if (high < 0 || low < 0) return std::string();
      sums += static_cast<char>(high * 16 + low);
    }
  }
  unsigned char md5[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  // Not there in a FIPS configuration of OpenSSL.
  if (EVP_Digest(sums.data(), sums.size(), md5, &size, EVP_md5(), nullptr) != 1) return std::string();
  std::string out = "\"";
  for (unsigned i = 0; i < size; ++i) {
    out += "0123456789abcdef"[md5[i] >> 4];
    out += "0123456789abcdef"[md5[i] & 15];
  }
  return out + "-" + std::to_string(parts.size()) + "\"";
}

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
template <class T = void>
std::string element_of(std::string_view body, std::string_view path, where at) {
  if (std::optional<error_document> refused = error_document::parse(body)) {
    throw error(200, refused->code, refused->message, refused->request_id, std::move(at));
  }
  element_handler found(path);
  xml_reader<T> reader(found);
  std::string wrong = reader.read(xml_legal(body));
  if (wrong.empty() && found.value.empty()) wrong = "the answer lacks " + std::string(path);
  if (!wrong.empty()) throw error(200, std::string(), std::move(wrong), std::string(), std::move(at));
  return std::move(found.value);
}

}  // namespace millrace::s3::detail
