// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <millrace/s3/config/config.hpp>
#include <millrace/text/ascii.hpp>

namespace millrace::s3 {

/// Where the requests for one bucket go and for which region they are signed.
///
/// Computed once per bucket by the rules of the AWS SDKs: virtual-hosted where the bucket's name and the certificate
/// allow it, in the path otherwise. path() gives the very bytes to be signed and sent.
class endpoint {
 public:
  /// `bucket` is a name or the ARN of an access point; empty for the service itself. Throws configuration_error for
  /// what cannot work together, for a missing or malformed region, and for the kinds of buckets that are not
  /// supported: directory buckets (S3 Express), Outposts, Object Lambda and multi-region access points.
  endpoint(const config& c, std::string_view bucket);

  /// `http` or `https`.
  std::string_view scheme() const noexcept { return scheme_; }
  /// The Host header: with the port only when it is not the scheme's default.
  const std::string& host() const noexcept { return host_; }
  /// The region to sign for.
  const std::string& region() const noexcept { return region_; }
  /// The service to sign for: `s3`.
  std::string_view service() const noexcept { return "s3"; }

  /// The encoded path of an object, given its raw key; of the bucket for an empty key.
  std::string path(std::string_view key) const;

  /// scheme://host/path of an object, without a query.
  std::string url(std::string_view key) const;

 private:
  void use_access_point(const config& c, std::string_view text);
  static void refuse_unsupported(std::string_view bucket);
  [[noreturn]] static void refuse(std::string why, std::string_view bucket = {});

  /// `s3.us-east-1.amazonaws.com`, `s3-accesspoint-fips.dualstack.eu-west-1.amazonaws.com`.
  static std::string regional_host(const config& c, std::string_view service, std::string_view region);

  /// Host names are signed in lower case; regions (of S3-alikes, say) keep theirs in the scope.
  void lower_host() noexcept {
    for (char& ch : host_) ch = text::to_lower(ch);
  }

  std::string_view scheme_ = "https";
  std::string host_;
  std::string region_;
  std::string base_;  // encoded path in front of the key, no slash at its end
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/impl/endpoint.ipp>
#endif
