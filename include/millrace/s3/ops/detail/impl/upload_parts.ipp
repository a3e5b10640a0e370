// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/ops/detail/upload_parts.hpp>
#include <millrace/s3/ops/with_retries.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE operation head_of(std::string bucket, std::string key, const std::string& etag) {
  operation op("HEAD", std::move(bucket), std::move(key));
  // Only strong validators may be used with If-Match (RFC 9110, 13.1.1).
  if (!etag.empty() && etag.compare(0, 2, "W/") != 0) op.fields.add("if-match", etag);
  return op;
}

MILLRACE_COROUTINE task<std::uint64_t> length_once(const session& s, const operation& op) {
  http::body_options none;
  http::exchange x = co_await send(s, op, std::move(none));
  const http::response_head& head = co_await x.head();
  co_return head.length.value_or(0);
}

/// Bytes of one part of the upload that made the object; what a store answers that knows no parts fits none, 0 where it
/// refuses.
MILLRACE_COROUTINE task<std::uint64_t> upload_part_size(const session& s, std::string bucket, std::string key,
                                                        std::string etag, std::uint64_t number) {
  operation op = head_of(std::move(bucket), std::move(key), etag);
  text::append_query_parameter(op.query, "partNumber", std::to_string(number));
  auto attempt = [&] { return length_once(s, op); };
  try {
    const std::uint64_t size = co_await with_retries<std::uint64_t>(s, attempt);
    co_return size;
  } catch (const error& e) {
    if (e.status() != 400 && e.status() != 405 && e.status() != 416 && e.status() != 501) throw;
  }
  co_return 0;
}

MILLRACE_COROUTINE_BODY task<bool> find_parts(const session& s, body_checksum& sum, std::string bucket, std::string key,
                                              std::string etag, std::uint64_t size) {
  if (sum.parts() == 1) co_return sum.cut_at(size, size);
  const std::uint64_t first = co_await upload_part_size(s, std::move(bucket), std::move(key), std::move(etag), 1);
  co_return sum.cut_at(first, size);
}

MILLRACE_COROUTINE_BODY task<bool> parts_alike(const session& s, const body_checksum& sum, std::string bucket,
                                               std::string key, std::string etag) {
  for (std::uint64_t number = 2; number < sum.parts(); ++number) {
    const std::uint64_t size = co_await upload_part_size(s, bucket, key, etag, number);
    if (size != sum.part_size()) co_return false;
  }
  co_return true;
}

}  // namespace millrace::s3::detail
