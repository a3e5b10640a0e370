// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::s3::detail {

/// The parts of a custom endpoint, `http://host:port/prefix`.
class endpoint_url {
 public:
  /// Throws configuration_error for anything that requests could not be sent to as it stands: another scheme, user
  /// info, a query, a broken port.
  static endpoint_url parse(std::string_view text);

  std::string_view scheme() const noexcept { return scheme_; }
  /// Lower case, without the port; IPv6 in brackets.
  const std::string& host() const noexcept { return host_; }
  /// `:9000`, or empty when it is the scheme's default: what follows the host in a Host header.
  const std::string& port() const noexcept { return port_; }
  /// Encoded path without a slash at its end; often empty.
  const std::string& prefix() const noexcept { return prefix_; }
  /// True for an IPv4 or IPv6 address: no bucket can go in front of it.
  bool is_address() const noexcept { return is_address_; }

 private:
  [[noreturn]] static void refuse(std::string_view text, const char* why);

  void set_port(std::string_view digits, std::string_view text);

  std::string_view scheme_;
  std::string host_;
  std::string port_;
  std::string prefix_;
  bool is_address_ = false;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/detail/impl/endpoint_url.ipp>
#endif
