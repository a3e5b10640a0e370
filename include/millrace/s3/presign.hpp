// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <millrace/s3/ops/send.hpp>

namespace millrace::s3 {

/// A URL with which anybody can do one thing with one object, `method` (GET, HEAD, PUT, DELETE), for `seconds` (1 to
/// 604800) from now on, on the account of our credentials; with temporary ones, no longer than they last. Whoever has
/// it sends it as it is, with no header of its own but Host and what HTTP needs. It is a secret: never log it.
///
/// Throws configuration_error for a time that is out of bounds, for anonymous credentials and when `key` is empty;
/// nothing is sent but what credentials and region may need.
template <class Session>
task<std::string> presign(std::shared_ptr<const Session> s, std::string bucket, std::string key, std::string method,
                          std::int64_t seconds) {
  if (key.empty()) throw configuration_error("a presigned URL is for an object: expected s3://bucket/key");
  executor& ex = co_await this_executor();
  const credentials who = co_await s->provider().get();
  if (s->lacks_region(bucket)) co_await detail::learn_own_region(*s);
  const endpoint to(s->for_bucket(bucket), bucket);
  const std::string path = to.path(key);
  signing_request q;
  q.method = method;
  q.host = to.host();
  q.path = path;
  if (s->base().requester_pays) q.query = "x-amz-request-payer=requester";
  q.region = to.region();
  q.service = to.service();
  q.payload = unsigned_payload;
  std::string url = to.url(key);
  url += '?';
  url += detail::loop_signer<std::void_t<Session>>::of(ex).presign(q, who, s->now(), seconds);
  co_return url;
}

}  // namespace millrace::s3
