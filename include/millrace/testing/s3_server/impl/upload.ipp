// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/refusal.hpp>
#include <millrace/testing/s3_server/upload.hpp>

namespace millrace::s3_server {

MILLRACE_INLINE object upload::assemble(const part_list& wanted, std::uint64_t min_part_size) const {
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
    whole.checksums.emplace_back(checksum_field(), detail::to_base64(detail::checksum_of(algorithm, checksums)) + '-' +
                                                       std::to_string(wanted.size()));
    whole.checksums.emplace_back("x-amz-checksum-type", "COMPOSITE");
  } else if (!algorithm.empty()) {
    std::string content;
    for (const bytes& piece : whole.content) content += piece.view();
    whole.checksums.emplace_back(checksum_field(), detail::to_base64(detail::checksum_of(algorithm, content)));
  }
  whole.fields = fields;
  return whole;
}

MILLRACE_INLINE void upload::check(const claim& wanted, const object& part) const {
  if (algorithm.empty()) return;
  if (composite && wanted.checksum.empty()) {
    throw refusal(400, "InvalidRequest",
                  "the upload was created with a checksum, which is missing for part " + std::to_string(wanted.number) +
                      " in the list of parts");
  }
  if (!wanted.checksum.empty() && wanted.checksum != part.checksum(checksum_field())) {
    throw refusal(400, "InvalidPart", "the checksum of part " + std::to_string(wanted.number) + " differs");
  }
}

MILLRACE_INLINE std::string upload::from_hex(const std::string& hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  }
  return out;
}

}  // namespace millrace::s3_server
