// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/http/engine.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/io/process.hpp>
#include <millrace/io/timeout.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/auth/default_credentials.hpp>
#include <millrace/s3/auth/detail/credential_requests.hpp>
#include <millrace/s3/config/profile_file.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_COROUTINE_BODY task<http::response> surroundings::send(http::request r, request_limits limits) const {
  http::transport_options options = services_;
  if (limits.direct) options.proxy.clear();  // whatever the variables say
  options.connect_timeout = limits.connect;
  options.first_byte_timeout = options.stall_timeout = limits.total;
  return send_within(std::move(r), std::make_shared<const http::transport_options>(std::move(options)), limits);
}

MILLRACE_COROUTINE_BODY task<millrace::process_result> surroundings::run(std::string command, duration longest,
                                                                         std::size_t limit) const {
  return millrace::run_process(std::move(command), longest, limit);
}

MILLRACE_COROUTINE_BODY task<http::response> surroundings::send_wiped(
    http::request r, std::shared_ptr<const http::transport_options> options, std::size_t limit) {
  const wiped_bytes wiped_body(r.body);  // before the exchange, which reads it
  executor& ex = co_await this_executor();
  http::exchange x(http::engine::of(ex), std::move(r), std::move(options));
  http::response answer;
  const wiped_text wiped(answer.body);  // if it is not returned
  answer.head = co_await x.head();
  answer.body.reserve(limit);
  for (;;) {
    const bytes piece = co_await x.read();
    if (piece.empty()) break;
    const bool fits = piece.size() <= limit - answer.body.size();
    if (fits) answer.body.append(piece.data(), piece.size());
    const wiped_bytes wiped_piece(piece);  // it has no other owner, and the exchange writes only after it
    if (!fits) {
      throw http::error(http::failure::too_large, "the answer is longer than " + std::to_string(limit) + " bytes",
                        where{http::displayed(x.asked().url), std::nullopt, std::string()});
    }
  }
  co_return std::move(answer);
}

MILLRACE_COROUTINE_BODY task<http::response> surroundings::send_within(
    http::request r, std::shared_ptr<const http::transport_options> options, request_limits limits) {
  const std::string url = http::displayed(r.url);
  try {
    task<http::response> sending = send_wiped(std::move(r), std::move(options), limits.answer);
    const duration longest =
        millrace::detail::added(limits.connect, millrace::detail::added(limits.total, limits.total));
    http::response answer = co_await with_timeout(longest, std::move(sending));
    co_return std::move(answer);
  } catch (const timeout_error& e) {
    throw http::error(http::failure::timeout, e.reason(), where{url, std::nullopt, std::string()});
  }
}

}  // namespace millrace::s3::detail
