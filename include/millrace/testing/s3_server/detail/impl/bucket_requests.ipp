// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/bucket_requests.hpp>
#include <millrace/testing/s3_server/detail/date.hpp>
#include <millrace/testing/s3_server/detail/percent.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/detail/xml.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE list_position read_token(const std::string& token) {
  std::string escaped;
  for (std::size_t i = 1; i < token.size(); i += 2) escaped += '%' + token.substr(i, 2);
  const std::optional<std::string> text = percent_decode(escaped);
  if (token.size() < 3 || (token[0] != 'k' && token[0] != 'p') || !text) {
    throw refusal(400, "InvalidArgument", "The continuation token provided is incorrect");
  }
  return list_position(*text, token[0] == 'p');
}

MILLRACE_INLINE reply list_objects(store& s, const request& r, const options& o) {
  const auto parameter = [&](const char* name) {
    const std::string* value = r.parameter_value(name);
    return value == nullptr ? std::string() : *value;
  };
  const bool encoded = r.has("encoding-type");
  if (encoded && parameter("encoding-type") != "url") {
    throw refusal(400, "InvalidArgument", "Invalid Encoding Method specified in Request");
  }
  const auto shown = [&](const std::string& text) { return encoded ? listing_encode(text) : text; };
  std::size_t max_keys = 1000;
  if (r.has("max-keys")) {
    const auto number = parse_number(parameter("max-keys"));
    if (!number || *number > 0x7fffffff) {
      throw refusal(400, "InvalidArgument", "Provided max-keys not an integer or within integer range");
    }
    max_keys = std::min<std::size_t>(*number, 1000);
  }
  const std::string token = parameter("continuation-token");
  if (r.has("continuation-token") && token.empty()) {
    throw refusal(400, "InvalidArgument", "The continuation token provided is incorrect");
  }
  const list_position from = token.empty() ? list_position(parameter("start-after"), false) : read_token(token);
  const std::string delimiter = parameter("delimiter");
  const list_page page = s.list(r.bucket, parameter("prefix"), delimiter, from, std::min(max_keys, o.list_page));

  xml out;
  out.open("ListBucketResult", s3_namespace).element("Name", r.bucket).element("Prefix", shown(parameter("prefix")));
  if (!delimiter.empty()) out.element("Delimiter", shown(delimiter));
  if (r.has("start-after")) out.element("StartAfter", shown(parameter("start-after")));
  if (!token.empty()) out.element("ContinuationToken", token);
  if (page.truncated) out.element("NextContinuationToken", write_token(page.next));
  out.element("KeyCount", std::to_string(page.count())).element("MaxKeys", std::to_string(max_keys));
  if (encoded) out.element("EncodingType", "url");
  out.element("IsTruncated", page.truncated ? "true" : "false");
  for (const auto& [key, entry] : page.objects) {
    out.open("Contents")
        .element("Key", shown(key))
        .element("LastModified", iso_date(entry->modified))
        .element("ETag", entry->etag)
        .element("Size", std::to_string(entry->size))
        .element("StorageClass", "STANDARD")
        .close("Contents");
  }
  for (const std::string& prefix : page.prefixes) {
    out.open("CommonPrefixes").element("Prefix", shown(prefix)).close("CommonPrefixes");
  }
  out.close("ListBucketResult");
  return reply::document(out.take());
}

MILLRACE_INLINE reply create_bucket(store& s, const request& r) {
  if (r.bucket.size() < 3 || r.bucket.size() > 63) {
    throw refusal(400, "InvalidBucketName", "The specified bucket is not valid.").with("BucketName", r.bucket);
  }
  if (!s.create_bucket(r.bucket)) {
    throw refusal(409, "BucketAlreadyOwnedByYou",
                  "Your previous request to create the named bucket succeeded and you "
                  "already own it.")
        .with("BucketName", r.bucket);
  }
  reply answer;
  answer.add("Location", '/' + r.bucket);
  return answer;
}

MILLRACE_INLINE reply head_bucket(store& s, const request& r, const options& o) {
  if (!s.has_bucket(r.bucket)) throw refusal(404, "NoSuchBucket", "The specified bucket does not exist");
  reply answer;
  answer.add("x-amz-bucket-region", o.region);
  return answer;
}

MILLRACE_INLINE reply bucket_location(store& s, const request& r, const options& o) {
  if (!s.has_bucket(r.bucket)) throw refusal(404, "NoSuchBucket", "The specified bucket does not exist");
  xml out;
  // The oldest region has no name there.
  out.element("LocationConstraint", o.region == "us-east-1" ? "" : o.region, s3_namespace);
  return reply::document(out.take());
}

}  // namespace millrace::s3_server::detail
