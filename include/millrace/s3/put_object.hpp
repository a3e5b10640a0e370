// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <millrace/s3/send.hpp>
#include <millrace/s3/with_retries.hpp>

namespace millrace::s3 {

namespace detail {

inline task<std::string> put_once(const session& s, const operation& op) {
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  const http::response_head& head = co_await x.head();
  std::string etag = head.etag();
  co_await http::read_all(x, 64 * KiB);
  co_return etag;
}

}  // namespace detail

/// Stores `body` as an object, in one request whose payload is covered by the signature; gives the ETag. At most 5 GiB
/// (PutObject's limit); the bytes must not change until it is done. Retried as a whole.
inline task<std::string> put_object(std::shared_ptr<const session> s, std::string bucket, std::string key, bytes body,
                                    std::string content_type = std::string()) {
  operation op("PUT", std::move(bucket), std::move(key));
  op.body = std::move(body);
  if (!content_type.empty()) op.fields.add("content-type", std::move(content_type));
  auto attempt = [&] { return detail::put_once(*s, op); };
  co_return co_await with_retries<std::string>(*s, attempt);
}

/// Creates a bucket; one that is ours already is fine.
inline task<void> create_bucket(std::shared_ptr<const session> s, std::string bucket) {
  const operation op("PUT", std::move(bucket), std::string());
  auto attempt = [&] { return detail::put_once(*s, op); };
  try {
    co_await with_retries<std::string>(*s, attempt);
  } catch (const error& e) {
    if (e.code() != "BucketAlreadyOwnedByYou") throw;
  }
}

}  // namespace millrace::s3
