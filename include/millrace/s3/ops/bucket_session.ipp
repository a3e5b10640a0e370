// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/s3/auth/detail/credential_requests.hpp>
#include <millrace/s3/auth/refreshing_credentials.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/ops/bucket_session.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/wire/documents.hpp>
#include <millrace/text/dates.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_COROUTINE_BODY task<sourced_credentials> bucket_session_source::resolve() const {
  return create(session_, bucket_);
}

MILLRACE_COROUTINE_BODY task<std::string> bucket_session_source::region() const {
  return session_->provider().region();
}

MILLRACE_COROUTINE_BODY task<sourced_credentials> bucket_session_source::create(std::shared_ptr<const session> s,
                                                                                std::string bucket) {
  operation op("GET", std::move(bucket), std::string());
  op.query = "session";
  http::body_options small;
  http::exchange x = co_await send(*s, op, std::move(small));
  const http::response_head& head = co_await x.head();
  std::optional<std::int64_t> sent;  // by the store's clock: 5 minutes are less than clocks may differ
  if (const std::string* const date = head.fields.find("date")) sent = text::parse_http_date(*date, s->now());
  std::string answer = co_await http::read_all(x, 64 * KiB);
  const wiped_text wiped_answer(answer);
  std::string secret = element_of(answer, "SecretAccessKey", op.at());
  const wiped_text wiped_secret(secret);
  std::string token = element_of(answer, "SessionToken", op.at());
  const wiped_text wiped_token(token);
  std::optional<std::int64_t> end = text::parse_iso8601(element_of(answer, "Expiration", op.at()));
  if (!end) throw error(200, std::string(), "the session's Expiration is no date", std::string(), op.at());
  if (sent) *end += s->now() - *sent;
  credentials who(element_of(answer, "AccessKeyId", op.at()), secret, token, end);
  co_return sourced_credentials(std::move(who), "the session with " + op.bucket);
}

/// A template, so that headers cost programs that send no requests nothing.
template <class Source>
std::shared_ptr<credentials_provider> sessions_by(const session& s, const std::string& bucket) {
  return std::make_shared<refreshing_credentials<Source>>(std::make_shared<Source>(s, bucket));
}

MILLRACE_COROUTINE_BODY credentials_provider& credentials_for(const session& s, const operation& op) {
  if (!is_directory_bucket(op.bucket) || op.query == "session") return s.provider();
  if (credentials_provider* const known = s.bucket_sessions(op.bucket, nullptr)) return *known;
  return *s.bucket_sessions(op.bucket, sessions_by<bucket_session_source>(s, op.bucket));
}

}  // namespace millrace::inline MILLRACE_ABI::s3::detail
