// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/origin/object.hpp>
#include <millrace/origin/refusal.hpp>

namespace millrace::origin_server {

/// A multipart upload that is neither completed nor aborted.
class upload {
 public:
  upload() = default;
  upload(std::string in_bucket, std::string of_key, std::vector<object::field> object_fields)
      : bucket(std::move(in_bucket)), key(std::move(of_key)), fields(std::move(object_fields)) {}

  /// What a client says to be the parts: number and ETag (with or without quotes).
  using part_list = std::vector<std::pair<std::uint64_t, std::string>>;

  std::string bucket;
  std::string key;
  std::vector<object::field> fields;
  std::map<std::uint64_t, std::shared_ptr<const object>> parts;

  /// The object made of `wanted`; throws refusal. The ETag is the MD5 of the parts' MD5s and their number, as S3's.
  object assemble(const part_list& wanted, std::uint64_t min_part_size) const {
    if (wanted.empty()) throw refusal(400, "MalformedXML", "the upload is completed with no part");
    object whole;
    std::string sums;
    for (std::size_t i = 1; i < wanted.size(); ++i) {
      if (wanted[i].first <= wanted[i - 1].first) {
        throw refusal(400, "InvalidPartOrder", "the list of parts is not in ascending order");
      }
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto& [number, tag] = wanted[i];
      const auto found = parts.find(number);
      if (found == parts.end() || unquoted(found->second->etag) != unquoted(tag)) {
        throw refusal(400, "InvalidPart", "part " + std::to_string(number) + " is not there, or its ETag differs");
      }
      const object& part = *found->second;
      if (i + 1 < wanted.size() && part.size < min_part_size) {
        throw refusal(400, "EntityTooSmall", "part " + std::to_string(number) + " is smaller than the minimum")
            .with("ProposedSize", std::to_string(part.size))
            .with("MinSizeAllowed", std::to_string(min_part_size))
            .with("PartNumber", std::to_string(number));
      }
      for (const bytes& piece : part.content) whole.content.push_back(piece);
      whole.size += part.size;
      sums += from_hex(unquoted(part.etag));
    }
    whole.etag = '"' + detail::to_hex(detail::digest_of("MD5", sums)) + '-' + std::to_string(wanted.size()) + '"';
    whole.fields = fields;
    return whole;
  }

 private:
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

}  // namespace millrace::origin_server
