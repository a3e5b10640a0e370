// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/ops/bucket_session.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/presign.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_COROUTINE_BODY task<std::string> presign(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                  std::string method, std::int64_t seconds) {
  if (key.empty()) throw configuration_error("a presigned URL is for an object: expected s3://bucket/key");
  if (s->base().encryption_key) {
    throw configuration_error("a presigned URL cannot carry a customer-provided key (SSE-C): its holder would send it",
                              where{"s3://" + bucket + "/" + key, std::nullopt, std::string()});
  }
  executor& ex = co_await this_executor();
  const operation op(method, bucket, key);
  const credentials who = co_await detail::credentials_for(*s, op).get();
  if (s->lacks_region(bucket)) co_await detail::learn_own_region(*s);
  const endpoint to(s->for_bucket(bucket), bucket);
  const std::string path = to.path(key);
  signing_request q;
  q.method = method;
  q.host = to.host();
  q.path = path;
  q.bucket_session = detail::is_directory_bucket(bucket);
  if (s->base().requester_pays && !q.bucket_session) q.query = "x-amz-request-payer=requester";
  q.region = to.region();
  q.service = to.service();
  q.payload = unsigned_payload;
  std::string url = to.url(key);
  url += '?';
  url += detail::loop_signer::of(ex).presign(q, who, s->now(), seconds);
  co_return url;
}

}  // namespace millrace::s3
