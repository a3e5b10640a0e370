// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/http/response.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/session.hpp>
#include <millrace/s3/sign/signer.hpp>

namespace millrace::s3 {

/// One S3 request before it is signed.
class operation {
 public:
  operation(std::string http_method, std::string bucket_name, std::string object_key)
      : method(std::move(http_method)), bucket(std::move(bucket_name)), key(std::move(object_key)) {}

  std::string method;
  std::string bucket;
  std::string key;    ///< raw bytes; empty for the bucket itself
  std::string query;  ///< encoded, without the question mark
  http::headers fields;
  std::optional<http::byte_range> range;
  bytes body;

  where at() const;
};

namespace detail {

/// The signer of a loop: signers are for one thread, clients are for all.
class loop_signer final : public executor_service {
 public:
  static signer& of(executor& ex) {
    return ex.service<loop_signer>().signer_;
  }

 private:
  signer signer_;
};

/// Signs `op` for this moment, with credentials of one snapshot.
http::request signed_request(executor& ex, const session& s, const operation& op, const credentials& who);

/// Reads an answer that is no success and makes an exception of it; learns the bucket's region and the store's clock
/// where the answer tells them.
MILLRACE_COROUTINE task<error> refusal(const session& s, const operation& op, http::exchange& x,
                                       const http::response_head& head);

/// Asks whoever gives the credentials for the region of this machine: the last resort.
MILLRACE_COROUTINE task<void> learn_own_region(const session& s);

}  // namespace detail

/// Signs and sends `op` and waits for the head of its answer; anything but 2xx is thrown as s3::error with S3's own
/// code and message. One attempt. The body is read from the exchange.
MILLRACE_COROUTINE task<http::exchange> send(const session& s, const operation& op, http::body_options body);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/impl/send.ipp>
#endif
