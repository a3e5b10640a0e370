// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/ops/detail/upload_requests.hpp>
#include <millrace/s3/ops/put_object.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/ops/with_retries.hpp>

namespace millrace::s3 {

MILLRACE_COROUTINE_BODY task<std::string> put_object(std::shared_ptr<const session> s, std::string bucket,
                                                     std::string key, bytes body, detail::put_plan plan) {
  std::string etag = co_await detail::store_whole(s, std::move(bucket), std::move(key), std::move(body), plan);
  co_return etag;
}

MILLRACE_COROUTINE_BODY task<void> create_bucket(std::shared_ptr<const session> s, std::string bucket) {
  const operation op("PUT", std::move(bucket), std::string());
  auto attempt = [&] { return detail::discard_once(*s, op); };
  try {
    co_await with_retries<void>(*s, attempt);
  } catch (const error& e) {
    if (e.code() != "BucketAlreadyOwnedByYou") throw;
  }
}

}  // namespace millrace::s3
