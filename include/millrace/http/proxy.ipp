// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/proxy.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::http {

MILLRACE_INLINE const char* misread_proxy(std::string_view url) noexcept {
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

MILLRACE_INLINE std::string displayed_proxy(std::string_view url) {
  // Up to the last @ it may be a password, whatever is in it: one with a slash is no URL that could be taken apart.
  std::string shown = url.find("://") == std::string_view::npos ? "http://" : "";
  shown += url;
  const std::size_t host = shown.find("://") + 3;
  if (const std::size_t at = shown.rfind('@'); at != std::string::npos && at >= host) shown.erase(host, at + 1 - host);
  return shown;
}

MILLRACE_INLINE long proxy_port(std::string_view url) noexcept {
  const std::size_t scheme = url.find("://");
  const long otherwise = url.substr(0, scheme == std::string_view::npos ? 0 : scheme) == "https" ? 443 : 1080;
  if (scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  const std::size_t user = url.rfind('@');
  if (user != std::string_view::npos) url.remove_prefix(user + 1);
  url = url.substr(0, url.find('/'));
  const std::size_t colon = url.rfind(':');
  if (colon == std::string_view::npos || url.find(']', colon) != std::string_view::npos) return otherwise;
  return text::parse_decimal<long>(url.substr(colon + 1), 1, 65535).value_or(otherwise);
}

MILLRACE_INLINE proxy_choice proxy_choice::from_environment(const environment& variables, std::string_view scheme) {
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

MILLRACE_INLINE void proxy_choice::apply_to(transport_options& to) const {
  to.proxy = url;
  to.no_proxy = no_proxy;
  if (url.empty() || no_proxy == "*") return;
  if (!to.no_proxy.empty()) to.no_proxy += ',';
  to.no_proxy += "localhost,127.0.0.1,::1";
}

}  // namespace millrace::http
