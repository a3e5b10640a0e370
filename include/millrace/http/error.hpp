// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI::http {

/// The kind of a failed exchange: decides whether it may be retried.
enum class failure {
  resolve,    ///< the host name did not resolve
  connect,    ///< no connection (refused, unreachable, connect time-out, a TLS handshake that broke off)
  tls,        ///< the certificate, or the file of authorities that it is checked against, is not right
  timeout,    ///< no first byte, or no progress, within the time-out
  broken,     ///< the connection broke, or the body ended before its length
  protocol,   ///< an answer that is not valid HTTP, or contradicts the request (length, range, duplicated headers)
  too_large,  ///< more than the caller allows
  status,     ///< a complete answer with a status that the caller did not want
};

/// True if the same request may have another answer than `status` soon: 408, 425, 429, 499, and all 5xx but 501 and
/// 505.
constexpr bool may_pass(int status) noexcept {
  if (status >= 500 && status < 600) return status != 501 && status != 505;
  return status == 408 || status == 425 || status == 429 || status == 499;
}

/// An exchange that failed. what() names the URL without its query string (which may carry a signature).
class error : public millrace::error {
 public:
  error(failure kind, std::string reason, where at = where(), int status = 0)
      : millrace::error(std::move(reason), std::move(at)), kind_(kind), status_(status) {}

  failure kind() const noexcept { return kind_; }
  /// HTTP status, 0 when none was received.
  int status() const noexcept { return status_; }
  /// True for faults of the connection rather than of the request: trying again may help.
  bool transient() const noexcept {
    const bool of_connection = kind_ == failure::resolve || kind_ == failure::connect || kind_ == failure::timeout ||
                               kind_ == failure::broken;
    return of_connection || (kind_ == failure::status && may_pass(status_));
  }

 private:
  failure kind_;
  int status_;
};

/// The answer was the beginning of the range that was asked for, and is whole: a server may send less (RFC 9110,
/// 15.3.7). Its bytes lie in body_options::resume, and the next request is for those after them.
class short_answer : public error {
 public:
  explicit short_answer(std::string reason, where at = where())
      : error(failure::broken, std::move(reason), std::move(at), 206) {}
};

/// `url` up to its query string or fragment, without user information: fit for messages.
inline std::string displayed(const std::string& url) { return millrace::detail::without_secrets(url); }

/// `url` up to its path, as displayed(): the server that it names.
inline std::string displayed_server(const std::string& url) {
  std::string text = displayed(url);
  const std::size_t scheme = text.find("://");
  return text.substr(0, text.find('/', scheme == std::string::npos ? 0 : scheme + 3));
}

}  // namespace millrace::http
