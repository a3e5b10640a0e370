// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/s3/config/config.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// One label of a host name: letters, digits and inner hyphens, 1 to 63 of them.
bool is_host_label(std::string_view text) noexcept;

/// Labels with dots between them. Whatever goes into a host name or a signing scope is checked with this before.
bool is_host_labels(std::string_view text) noexcept;

/// Four decimal numbers from 0 to 255.
bool is_ipv4(std::string_view text) noexcept;

/// True when a bucket's name may be put in front of a host name. Names with dots may only if no TLS certificate has
/// to match: a wildcard covers one label.
bool is_virtual_hostable_bucket(std::string_view bucket, bool allow_dots) noexcept;

/// True for the names of directory buckets (S3 Express One Zone) and of their access points: they end in `--x-s3` and
/// `--xa-s3`.
bool is_directory_bucket(std::string_view name) noexcept;

/// The parts of a custom endpoint, `http://host:port/prefix`.
class endpoint_url {
 public:
  /// Throws configuration_error for anything that requests could not be sent to as it stands: another scheme, user
  /// info, a query, a broken port.
  static endpoint_url parse(std::string_view text);

  std::string_view scheme() const noexcept { return scheme_; }
  /// Lower case, without the port; IPv6 in brackets.
  const std::string& host() const noexcept { return host_; }
  /// `:9000`, or empty when it is the scheme's default: the end of a Host header.
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

/// A separate AWS: its own accounts, ARNs and domain.
struct partition {
  std::string_view name;
  std::string_view dns_suffix;
};

/// The partition of a region, by its prefix; unknown regions are of the main one.
partition partition_of(std::string_view region) noexcept;

/// The URL of a service that gives credentials: STS, or the portal of SSO.
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

namespace millrace::inline MILLRACE_ABI::s3 {

/// The address that requests for one bucket go to, and the region that they are signed for.
///
/// Computed once per bucket by the rules of the AWS SDKs: virtual-hosted if the bucket's name and the certificate
/// allow it, in the path otherwise. path() gives the very bytes to be signed and sent.
class endpoint {
 public:
  /// `bucket` is a name or the ARN of an access point; empty for the service itself. Throws configuration_error for
  /// settings that cannot work together, for a missing or malformed region, and for the kinds of buckets that are not
  /// supported: Outposts, Object Lambda and multi-region access points.
  endpoint(const config& c, std::string_view bucket);

  /// `http` or `https`.
  std::string_view scheme() const noexcept { return scheme_; }
  /// The Host header: with the port only when it is not the scheme's default.
  const std::string& host() const noexcept { return host_; }
  /// The region to sign for.
  const std::string& region() const noexcept { return region_; }
  /// The service to sign for: `s3`, or `s3express` for a directory bucket.
  std::string_view service() const noexcept { return service_; }

  /// The encoded path of an object, given its raw key; of the bucket for an empty key.
  std::string path(std::string_view key) const;

  /// scheme://host/path of an object, without a query.
  std::string url(std::string_view key) const;

 private:
  /// The zonal front end of a directory bucket.
  static std::string zonal_host(const config& c, std::string_view bucket, std::string_view region);
  void use_access_point(const config& c, std::string_view text);
  [[noreturn]] static void refuse(std::string why, std::string_view bucket = {});

  /// `s3.us-east-1.amazonaws.com`, `s3-accesspoint-fips.dualstack.eu-west-1.amazonaws.com`,
  /// `s3express-usw2-az1.us-west-2.amazonaws.com`.
  static std::string regional_host(const config& c, std::string_view service, std::string_view region,
                                   std::string_view zone = {});

  /// Host names are signed in lower case; regions (of S3-alikes, say) keep theirs in the scope.
  void lower_host() noexcept {
    for (char& ch : host_) ch = text::to_lower(ch);
  }

  std::string_view scheme_ = "https";
  std::string_view service_ = "s3";
  std::string host_;
  std::string region_;
  std::string base_;  // encoded path in front of the key, no slash at its end
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/endpoint.ipp>
#endif
