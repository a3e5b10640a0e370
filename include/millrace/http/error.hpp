// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include <millrace/base/detail/shown_url.hpp>
#include <millrace/base/error.hpp>

namespace millrace::http {

/// What kind of failure an exchange met: decides who may retry it.
enum class failure {
  resolve,    ///< the host name did not resolve
  connect,    ///< no connection (refused, unreachable, connect time-out, a TLS handshake that broke off)
  tls,        ///< the certificate, or what it is checked against, is not right
  timeout,    ///< no first byte, or no progress, within the time-out
  broken,     ///< the connection broke, or the body ended before its length
  protocol,   ///< an answer that is not valid HTTP, or contradicts the request (length, range, duplicated headers)
  too_large,  ///< more than the caller allows
  status,     ///< a complete answer with a status that the caller did not want
};

/// An exchange that failed. what() names the URL without its query string (which may carry a signature).
class error : public millrace::error {
 public:
  error(failure kind, std::string reason, where at = where(), int status = 0)
      : millrace::error(std::move(reason), std::move(at)), kind_(kind), status_(status) {}

  failure kind() const noexcept { return kind_; }
  /// HTTP status, 0 when none was received.
  int status() const noexcept { return status_; }
  /// True for faults of the way rather than of the request: trying again may help.
  bool transient() const noexcept;

 private:
  failure kind_;
  int status_;
};

/// `url` up to its query string or fragment, without user information: fit for messages.
inline std::string displayed(const std::string& url) { return millrace::detail::without_secrets(url); }

}  // namespace millrace::http

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/impl/error.ipp>
#endif
