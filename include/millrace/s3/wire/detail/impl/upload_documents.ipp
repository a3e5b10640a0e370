// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/wire/detail/upload_documents.hpp>
#include <millrace/s3/wire/detail/xml_legal.hpp>
#include <millrace/s3/wire/error_document.hpp>
#include <millrace/text/hex.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE std::string crc32c_value(std::string_view data) {
  const std::uint32_t crc = crc32c(0, data.data(), data.size());
  const unsigned char raw[4] = {static_cast<unsigned char>(crc >> 24), static_cast<unsigned char>(crc >> 16),
                                static_cast<unsigned char>(crc >> 8), static_cast<unsigned char>(crc)};
  unsigned char text[9];
  EVP_EncodeBlock(text, raw, 4);
  return std::string(reinterpret_cast<const char*>(text), 8);
}

MILLRACE_INLINE std::string complete_document(const std::vector<stored_part>& parts) {
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

MILLRACE_INLINE std::string composite_etag(const std::vector<stored_part>& parts) {
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

MILLRACE_INLINE std::string element_of(std::string_view body, std::string_view path, where at) {
  if (std::optional<error_document> refused = error_document::parse(body)) {
    throw error(200, refused->code, refused->message, refused->request_id, std::move(at));
  }
  element_handler found(path);
  xml_reader reader(found);
  std::string wrong = reader.read(xml_legal(body));
  if (wrong.empty() && found.value.empty()) wrong = "the answer lacks " + std::string(path);
  if (!wrong.empty()) throw error(200, std::string(), std::move(wrong), std::string(), std::move(at));
  return std::move(found.value);
}

}  // namespace millrace::s3::detail
