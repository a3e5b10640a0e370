// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <millrace/s3/config/settings.hpp>

namespace millrace::s3::detail {

/// Where one of the services is that give credentials: STS, and the portal of SSO.
class service_endpoint {
 public:
  /// `host` is `sts` or `portal.sso`; `variable` AWS_ENDPOINT_URL_STS or the like, `section` its block in a services
  /// section. Order: that variable, AWS_ENDPOINT_URL, the services section, endpoint_url of the profile, AWS.
  service_endpoint(const settings& s, std::string_view host, const char* variable, std::string_view section,
                   const std::string& region);

  std::string url(std::string_view path) const { return scheme + "://" + authority + prefix + std::string(path); }

  std::string scheme;
  std::string authority;
  std::string prefix;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/detail/impl/service_endpoint.ipp>
#endif
