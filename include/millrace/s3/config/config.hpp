// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/environment.hpp>
#include <millrace/base/short_text.hpp>
#include <millrace/retry/retry_options.hpp>
#include <millrace/s3/sign/credentials.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

class settings;

/// The place of the bucket's name in a request.
enum class addressing {
  automatic,       ///< virtual-hosted at AWS, in the path at a custom endpoint (most S3-alikes need that)
  virtual_hosted,  ///< in the host name, if the bucket's name and the endpoint allow it
  path,            ///< always in the path
};

/// Explicit values for a config, which win over the environment. Empty and absent mean "not given". Texts are copied
/// into the struct. Other settings are members of the config itself: a program changes them in one that
/// config::from_environment() has made.
struct config_options {
  short_text<256> region = {};
  short_text<1024> endpoint = {};  ///< https://host:port, or http://
  addressing style = addressing::automatic;
  short_text<4096> ca_bundle = {};  ///< path of a PEM file
  std::optional<int> max_attempts = std::nullopt;
  std::optional<bool> validate_checksums = std::nullopt;
  retry_options retry = {};  ///< pauses and costs of retries; attempts are counted by max_attempts above
  bool requester_pays = false;
  /// Requests without any authorization: for public data. Counts if credentials would be looked for otherwise, in
  /// client::from_environment.
  bool anonymous = false;
};

/// The address of S3 and the way to reach it: everything but the credentials.
class config {
 public:
  /// Explicit values and defaults alone; reads no environment.
  explicit config(const config_options& given = config_options());

  /// Explicit values, then the variables of the AWS SDKs, then the selected profile of their files, then defaults.
  /// Throws configuration_error that names the variable or property whose value cannot be understood, or file and line.
  static config from_environment(const environment& variables, const config_options& given = config_options());
  static config from_settings(const settings& s, const config_options& given = config_options());

  // Sources of each: a variable, then a property of the profile, `s3.x` being one of its `s3 =` block.
  std::string region;        ///< AWS_REGION, AWS_DEFAULT_REGION, region; may be empty with a custom endpoint
  std::string endpoint_url;  ///< AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url; empty: AWS itself
  addressing style;          ///< s3.addressing_style: path, virtual or auto
  bool dual_stack;           ///< AWS_USE_DUALSTACK_ENDPOINT: hosts that have IPv6 addresses too
  bool fips;                 ///< AWS_USE_FIPS_ENDPOINT
  bool use_arn_region;       ///< AWS_S3_USE_ARN_REGION: an access point may lie in another region
  bool global_us_east_1;     ///< AWS_S3_US_EAST_1_REGIONAL_ENDPOINT=legacy: s3.amazonaws.com for us-east-1
  /// AWS_CA_BUNDLE, ca_bundle: path of a PEM file; then the result of http::authority_choice; empty: the system's.
  std::string ca_bundle;
  std::string ca_directory;  ///< SSL_CERT_DIR, if the file is not AWS's
  std::string ca_source;     ///< the variable or property that set them; empty: the program
  int max_attempts;          ///< AWS_MAX_ATTEMPTS: the first try counts
  bool validate_checksums;   ///< AWS_RESPONSE_CHECKSUM_VALIDATION: objects that are read to their end, by fetch in
                            ///< parts or whole, are compared with the checksum that the store keeps, which is asked for
  bool send_checksums;  ///< AWS_REQUEST_CHECKSUM_CALCULATION: uploads carry a checksum of their own, unless
                        ///< put_options says otherwise. Without one, and without TLS, their signature covers
                        ///< the SHA-256 of the payload
  retry_options retry;  ///< pauses and costs; its max_attempts does not count
  /// Every request says that its sender pays: some buckets demand it, and directory buckets do not know it.
  bool requester_pays;
  /// Objects are stored and read with it; requests are refused that would send it without TLS, but to this machine.
  customer_key encryption_key;
};

namespace detail {

/// A number of attempts: 1 to 999.
std::optional<int> parse_attempts(std::string_view text) noexcept;

}  // namespace detail

/// The host that answers for this bucket: the endpoint if one is configured, else AWS's front ends of the bucket. Names
/// the bounds of requests (storage::host()); no address.
inline std::string host_name(const config& c, std::string_view bucket) {
  return c.endpoint_url.empty() ? "s3://" + std::string(bucket) : c.endpoint_url;
}

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/config.ipp>
#endif
