// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/ops/detail/part_download.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/ops/with_retries.hpp>

namespace millrace::s3::detail {

MILLRACE_COROUTINE task<object_info> head_once(const session& s, const operation& op) {
  http::body_options none;
  http::exchange x = co_await send(s, op, std::move(none));
  const http::response_head& head = co_await x.head();
  if (!head.length) {
    throw http::error(http::failure::protocol, "the store does not tell the size of the object", op.at(), head.status);
  }
  object_info info;
  info.size = *head.length;
  info.etag = head.etag();
  co_return info;
}

/// The object as a whole, where ranges were refused because it is empty.
MILLRACE_COROUTINE task<object_part> get_empty_once(const session& s, const operation& op) {
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  const http::response_head& head = co_await x.head();
  if (head.length && *head.length != 0) {
    throw error(416, "InvalidRange", "the store refused a range of an object that is not empty", std::string(),
                op.at());
  }
  object_part result;
  result.object.etag = head.etag();
  const std::string nothing = co_await http::read_all(x, 0);
  co_return result;
}

/// What the object has become that was `version` and is not any more: for the message, so that one attempt will do.
MILLRACE_COROUTINE task<std::string> version_now(const session& s, const operation& op) {
  const operation head("HEAD", op.bucket, op.key);
  try {
    const object_info now = co_await head_once(s, head);
    if (!now.etag.empty()) co_return now.etag;
  } catch (const millrace::error&) {
  }
  co_return "another";
}

}  // namespace millrace::s3::detail

namespace millrace::s3 {

MILLRACE_COROUTINE_BODY task<object_part> get_object_range(std::shared_ptr<const session> s, std::string bucket,
                                                           std::string key, std::uint64_t offset, std::size_t length,
                                                           std::string if_match, slab_pool slabs,
                                                           std::optional<std::uint64_t> size) {
  operation op("GET", std::move(bucket), std::move(key));
  if (length == 0) throw configuration_error("a part of an object has at least one byte", op.at());
  if (length > slabs.slab_bytes()) {
    throw configuration_error("a part of " + std::to_string(length) + " bytes does not fit into a slab of " +
                                  std::to_string(slabs.slab_bytes()),
                              op.at());
  }
  const bool whole = s->base().validate_checksums && offset == 0 && size && *size > 0 && *size <= length;
  if (whole) length = static_cast<std::size_t>(*size);
  detail::part_download download(*s, std::move(op), offset, length, whole, std::move(if_match), std::move(slabs));
  const detail::part_download::attempt attempt(download);
  bool changed = false;
  try {
    object_part part = co_await with_retries<object_part>(*s, attempt);
    co_return part;
  } catch (const error& e) {
    // Stores answer 416 before 412 to a range that the object no longer has.
    changed = e.status() == 412 || (e.status() == 416 && (offset != 0 || download.resumed()));
    if ((!changed || download.version().empty()) && (e.status() != 416 || offset != 0)) throw;
  }
  operation asked = download.asked();
  if (changed) {
    const std::string now = co_await detail::version_now(*s, asked);
    throw detail::part_download::changed(download.version(), now, asked.at());
  }
  // No range of an empty object can be satisfied (RFC 9110, 14.1.2): ask for it as a whole.
  asked.range.reset();
  auto empty = [&] { return detail::get_empty_once(*s, asked); };
  object_part part = co_await with_retries<object_part>(*s, empty);
  co_return part;
}

MILLRACE_COROUTINE_BODY task<object_info> head_object(std::shared_ptr<const session> s, std::string bucket,
                                                      std::string key) {
  const operation op("HEAD", std::move(bucket), std::move(key));
  auto attempt = [&] { return detail::head_once(*s, op); };
  object_info info = co_await with_retries<object_info>(*s, attempt);
  co_return info;
}

}  // namespace millrace::s3
