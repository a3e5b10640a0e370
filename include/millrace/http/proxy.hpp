// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <millrace/base/environment.hpp>
#include <millrace/http/options.hpp>

namespace millrace::inline MILLRACE_ABI::http {

/// Why libcurl would misread a proxy's URL; null when it would not. It ends the host at the first `/`, `?` or `#`, even
/// one in a password, and then connects to the user as a host with the password as its port; a user or password with
/// %00 makes it go past the proxy.
const char* misread_proxy(std::string_view url) noexcept;

/// A proxy's URL for messages, without its user and password.
std::string displayed_proxy(std::string_view url);

/// The port of a proxy's URL, as libcurl takes it: 1080 if it names none, 443 of https.
long proxy_port(std::string_view url) noexcept;

/// The proxy that the environment sets for one scheme, with the names of the variables.
class proxy_choice {
 public:
  /// For `https`: https_proxy, HTTPS_PROXY; for `http` http_proxy alone (a CGI program's HTTP_PROXY is a header of its
  /// caller's); then all_proxy, ALL_PROXY. Hosts that bypass it: no_proxy, NO_PROXY. The order of curl.
  static proxy_choice from_environment(const environment& variables, std::string_view scheme);

  /// Servers on this machine are reached directly in any case: no proxy could reach them.
  void apply_to(transport_options& to) const;

  std::string url;       ///< empty: none. May hold a password.
  std::string no_proxy;  ///< as CURLOPT_NOPROXY takes it
  std::string source;    ///< the variable's name
  std::string no_proxy_source;
};

}  // namespace millrace::http

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/proxy.ipp>
#endif
