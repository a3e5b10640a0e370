// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/s3/config/detail/choices.hpp>
#include <millrace/s3/config/detail/endpoint_url.hpp>
#include <millrace/s3/config/detail/host_name.hpp>
#include <millrace/s3/config/detail/partition.hpp>
#include <millrace/s3/config/settings.hpp>

namespace millrace::s3::detail {

/// Where one of the services is that give credentials: STS, and the portal of SSO.
class service_endpoint {
 public:
  /// `host` is `sts` or `portal.sso`; `variable` AWS_ENDPOINT_URL_STS or the like, `section` its block in a services
  /// section. Order: that variable, AWS_ENDPOINT_URL, the services section, endpoint_url of the profile, AWS.
  template <class Settings>
  service_endpoint(const Settings& s, std::string_view host, const char* variable, std::string_view section,
                   const std::string& region) {
    if (const choice url = choose_endpoint(s, variable, section); url.value()) {
      const endpoint_url parts = endpoint_url::parse(*url.value());
      scheme = parts.scheme();
      authority = parts.host() + parts.port();
      prefix = parts.prefix();
      return;
    }
    if (!is_host_label(region)) throw configuration_error("not a region: \"" + region + "\"");
    const bool fips = choose_fips(s).flag(false);
    const bool dual = choose_dual_stack(s).flag(false);
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
