// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/config/detail/choices.hpp>
#include <millrace/s3/config/detail/endpoint_url.hpp>
#include <millrace/s3/config/detail/host_name.hpp>
#include <millrace/s3/config/detail/partition.hpp>
#include <millrace/s3/config/detail/service_endpoint.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE service_endpoint::service_endpoint(const settings& s, std::string_view host, const char* variable,
                                                   std::string_view section, const std::string& region) {
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

}  // namespace millrace::s3::detail
