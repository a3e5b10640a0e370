// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/conditions.hpp>
#include <millrace/testing/s3_server/detail/date.hpp>
#include <millrace/testing/s3_server/detail/object_requests.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE reply get_object(store& s, const request& r) {
  const std::shared_ptr<const object> o = s.get(r.bucket, r.key);
  reply answer;
  answer.add("ETag", o->etag).add("Last-Modified", http_date(o->modified)).add("Accept-Ranges", "bytes");
  if (not_modified(r, *o)) {
    answer.status = 304;
    answer.without_body = true;
    return answer;
  }
  const std::optional<selection> part = parse_range(r.field("range"), o->size);
  for (const auto& [name, value] : o->fields) answer.add(name, value);
  if (answer.find("content-type") == nullptr) answer.add("content-type", "binary/octet-stream");
  const std::string* mode = r.field("x-amz-checksum-mode");
  if (mode != nullptr && equal_ignoring_case(*mode, "ENABLED") && !part) {
    for (const auto& [name, value] : o->checksums) answer.add(name, value);
    if (!o->checksums.empty() && answer.find("x-amz-checksum-type") == nullptr) {
      answer.add("x-amz-checksum-type", "FULL_OBJECT");
    }
  }
  if (!part) {
    answer.set_body(o->content);
    return answer;
  }
  answer.status = 206;
  answer.add("Content-Range", "bytes " + std::to_string(part->first) + '-' +
                                  std::to_string(part->first + part->length - 1) + '/' + std::to_string(o->size));
  answer.set_body(o->range(part->first, part->length));
  return answer;
}

MILLRACE_INLINE reply head_part(store& s, const request& r) {
  const std::shared_ptr<const object> o = s.get(r.bucket, r.key);
  reply answer(206);
  answer.add("ETag", o->etag).add("Last-Modified", http_date(o->modified)).add("Accept-Ranges", "bytes");
  if (not_modified(r, *o)) throw refusal(304, "NotModified", "Not Modified");
  const std::vector<std::uint64_t> parts = o->parts.empty() ? std::vector<std::uint64_t>{o->size} : o->parts;
  const auto number = parse_number(*r.parameter_value("partNumber"));
  if (!number || *number < 1 || *number > parts.size()) {
    throw refusal(416, "InvalidPartNumber", "The requested partnumber is not satisfiable");
  }
  std::uint64_t first = 0;
  for (std::uint64_t i = 1; i < *number; ++i) first += parts[i - 1];
  const std::uint64_t length = parts[*number - 1];
  if (!o->parts.empty()) answer.add("x-amz-mp-parts-count", std::to_string(parts.size()));
  answer.add("Content-Range", "bytes " + std::to_string(first) + '-' + std::to_string(first + length - 1) + '/' +
                                  std::to_string(o->size));
  answer.set_body(o->range(first, length));
  return answer;
}

MILLRACE_INLINE std::vector<object::field> kept_fields(const request& r) {
  std::vector<object::field> kept;
  for (const auto& [name, value] : r.fields) {
    if (name == "content-type" || name == "cache-control" || name == "content-disposition" ||
        name.compare(0, 11, "x-amz-meta-") == 0) {
      kept.emplace_back(name, value);
    }
  }
  return kept;
}

MILLRACE_INLINE bool only_if_new(const request& r) {
  const std::string* none_match = r.field("if-none-match");
  if (none_match != nullptr && *none_match != "*") {
    throw refusal(501, "NotImplemented", "If-None-Match of a write supports \"*\" only");
  }
  return none_match != nullptr;
}

MILLRACE_INLINE reply put_object(store& s, const request& r, std::vector<object::field> checksums) {
  object o(r.body);
  o.fields = kept_fields(r);
  o.checksums = checksums;
  reply answer;
  answer.add("ETag", s.put_checked(r.bucket, r.key, std::move(o), only_if_new(r), r.field("if-match")));
  for (auto& [name, value] : checksums) answer.add(name, value);
  return answer;
}

MILLRACE_INLINE reply delete_object(store& s, const request& r) {
  if (!s.has_bucket(r.bucket)) throw refusal(404, "NoSuchBucket", "The specified bucket does not exist");
  s.erase(r.bucket, r.key);
  reply answer(204);
  answer.without_body = true;
  return answer;
}

}  // namespace millrace::s3_server::detail
