// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/environment.hpp>
#include <millrace/http/options.hpp>

namespace millrace::http {

/// Why libcurl would misread a proxy's URL; null when it would not. It ends the host at the first `/`, `?` or `#`, even
/// one in a password, and then connects to the user as a host with the password as its port; a user or password with
/// %00 makes it go past the proxy.
inline const char* misread_proxy(std::string_view url) noexcept {
  const std::size_t at = url.rfind('@');
  if (at == std::string_view::npos) return nullptr;
  const std::size_t scheme = url.find("://");
  const std::string_view user = url.substr(0, at).substr(scheme < at ? scheme + 3 : 0);
  if (user.find_first_of("/?#") != std::string_view::npos) {
    return "the proxy's user or password holds a / ? or # that is not percent-encoded";
  }
  if (user.find("%00") != std::string_view::npos) return "the proxy's user or password holds a NUL";
  return nullptr;
}

/// The proxy that the environment names for one scheme, with the variables that said so.
class proxy_choice {
 public:
  /// For `https`: https_proxy, HTTPS_PROXY; for `http` http_proxy alone (a CGI program's HTTP_PROXY is a header of its
  /// caller's); then all_proxy, ALL_PROXY. Hosts that bypass it: no_proxy, NO_PROXY. The order of curl.
  template <class = void>
  static proxy_choice from_environment(const environment& variables, std::string_view scheme) {
    proxy_choice out;
    const auto take = [&](const char* name, std::string& value, std::string& said_by) {
      if (!value.empty()) return;
      if (std::optional<std::string> text = variables.get(name)) {
        value = std::move(*text);
        said_by = name;
      }
    };
    if (scheme == "https") {
      take("https_proxy", out.url, out.source);
      take("HTTPS_PROXY", out.url, out.source);
    } else {
      take("http_proxy", out.url, out.source);
    }
    take("all_proxy", out.url, out.source);
    take("ALL_PROXY", out.url, out.source);
    take("no_proxy", out.no_proxy, out.no_proxy_source);
    take("NO_PROXY", out.no_proxy, out.no_proxy_source);
    return out;
  }

  /// Servers on this machine are reached directly in any case: no proxy could reach them.
  template <class = void>
  void apply_to(transport_options& to) const {
    to.proxy = url;
    to.no_proxy = no_proxy;
    if (url.empty() || no_proxy == "*") return;
    if (!to.no_proxy.empty()) to.no_proxy += ',';
    to.no_proxy += "localhost,127.0.0.1,::1";
  }

  std::string url;       ///< empty: none. May hold a password.
  std::string no_proxy;  ///< as CURLOPT_NOPROXY takes it
  std::string source;    ///< the variable's name
  std::string no_proxy_source;
};

}  // namespace millrace::http
