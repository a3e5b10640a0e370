// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/s3/detail/endpoint_url.hpp>
#include <millrace/s3/detail/host_name.hpp>
#include <millrace/s3/detail/partition.hpp>
#include <millrace/s3/settings.hpp>

namespace millrace::s3::detail {

/// True or false, as a variable or a property says it; anything else throws with the name of what said it.
inline bool flag_of(const settings& s, const char* variable, std::string_view property) {
  std::string name = variable;
  std::optional<std::string> value = s.variable(variable);
  if (!value) {
    const std::optional<std::string_view> text = s.property(property);
    if (!text) return false;
    value = std::string(*text);
    name = std::string(property) + " of profile " + s.profile_name();
  }
  std::string lower;
  for (char c : *value) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower == "true") return true;
  if (lower == "false") return false;
  throw configuration_error(name + " is \"" + *value + "\": expected true or false");
}

/// AWS_REGION, AWS_DEFAULT_REGION, the profile; empty when nothing says it.
inline std::string configured_region(const settings& s) {
  if (std::optional<std::string> value = s.variable("AWS_REGION")) return *value;
  if (std::optional<std::string> value = s.variable("AWS_DEFAULT_REGION")) return *value;
  return std::string(s.property("region").value_or(std::string_view()));
}

/// Where one of the services is that give credentials: STS, and the portal of SSO.
class service_endpoint {
 public:
  /// `host` is `sts` or `portal.sso`; `variable` AWS_ENDPOINT_URL_STS or the like, `section` its block in a services
  /// section. Order: that variable, AWS_ENDPOINT_URL, the services section, endpoint_url of the profile, AWS.
  service_endpoint(const settings& s, std::string_view host, const char* variable, std::string_view section,
                   const std::string& region) {
    if (!flag_of(s, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "ignore_configured_endpoint_urls")) {
      std::optional<std::string> url = s.variable(variable);
      if (!url) url = s.variable("AWS_ENDPOINT_URL");
      std::optional<std::string_view> property;
      if (!url) property = s.service_property(section, "endpoint_url");
      if (!url && !property) property = s.property("endpoint_url");
      if (property) url = std::string(*property);
      if (url) {
        const endpoint_url parts = endpoint_url::parse(*url);
        scheme = parts.scheme();
        authority = parts.host() + parts.port();
        prefix = parts.prefix();
        return;
      }
    }
    if (!is_host_label(region)) throw configuration_error("not a region: \"" + region + "\"");
    const bool fips = flag_of(s, "AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint");
    const bool dual = flag_of(s, "AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint");
    scheme = "https";
    authority = std::string(host) + (fips ? "-fips." : ".") + region + ".";
    const partition p = partition_of(region);
    if (!dual) {
      authority += p.dns_suffix;
    } else {
      authority += p.name == "aws-cn" ? "api.amazonwebservices.com.cn" : "api.aws";
    }
  }

  std::string url(std::string_view path) const { return scheme + "://" + authority + prefix + std::string(path); }

  std::string scheme;
  std::string authority;
  std::string prefix;
};

}  // namespace millrace::s3::detail
