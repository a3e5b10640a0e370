// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/ops/detail/upload_parts.hpp>
#include <millrace/s3/ops/object_checksum.hpp>
#include <millrace/s3/ops/with_retries.hpp>
#include <millrace/s3/wire/checksum_error.hpp>

namespace millrace::s3 {

MILLRACE_INLINE object_checksum::object_checksum(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                 std::string etag, detail::body_checksum sum)
    : session_(std::move(s)),
      bucket_(std::move(bucket)),
      key_(std::move(key)),
      etag_(std::move(etag)),
      sum_(std::move(sum)) {}

MILLRACE_COROUTINE_BODY task<void> object_checksum::compare(std::uint64_t handed_on) {
  if (sum_.matches()) co_return;
  if (sum_.parts() > 0) {
    const bool alike = co_await detail::parts_alike(*session_, sum_, bucket_, key_, etag_);
    if (!alike) co_return;  // it is of parts whose ends were taken for others
  }
  std::string reason = "the bytes do not have the " + std::string(sum_.name()) + " of the object";
  if (handed_on > 0) reason += "; " + std::to_string(handed_on) + " of them were handed on before this was known";
  throw checksum_error(std::move(reason), where{"s3://" + bucket_ + "/" + key_, std::nullopt, std::string()},
                       handed_on);
}

}  // namespace millrace::s3

namespace millrace::s3::detail {

MILLRACE_COROUTINE task<declared_checksum> checksum_once(const session& s, const operation& op) {
  declared_checksum result;
  http::body_options none;
  http::exchange x = co_await send(s, op, std::move(none));
  const http::response_head& head = co_await x.head();
  result.object.size = head.length.value_or(0);
  result.object.etag = head.etag();
  result.sum = body_checksum::of(head.fields);
  co_return std::move(result);
}

}  // namespace millrace::s3::detail

namespace millrace::s3 {

MILLRACE_COROUTINE_BODY task<std::unique_ptr<object_checksum>> checksum_of(std::shared_ptr<const session> s,
                                                                           std::string bucket, std::string key,
                                                                           std::string if_match) {
  operation op = detail::head_of(bucket, key, if_match);
  op.fields.add("x-amz-checksum-mode", "ENABLED");
  auto attempt = [&] { return detail::checksum_once(*s, op); };
  detail::declared_checksum declared;
  try {
    declared = co_await with_retries<detail::declared_checksum>(*s, attempt);
  } catch (const error& e) {
    if (e.status() != 405 && e.status() != 501) throw;
  }
  s->expect_crc(declared.sum ? declared.sum->crc() : crc_kind::none);
  if (!declared.sum) co_return nullptr;
  std::string etag = declared.object.etag;
  if (declared.sum->parts() > 0) {
    const bool found = co_await detail::find_parts(*s, *declared.sum, bucket, key, etag, declared.object.size);
    if (!found) co_return nullptr;
  }
  co_return std::make_unique<object_checksum>(std::move(s), std::move(bucket), std::move(key), std::move(etag),
                                              std::move(*declared.sum));
}

}  // namespace millrace::s3
