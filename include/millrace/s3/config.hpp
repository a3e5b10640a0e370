// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/retry_options.hpp>

namespace millrace::s3 {

/// Where the bucket's name goes in a request.
enum class addressing {
  automatic,       ///< virtual-hosted at AWS, in the path at a custom endpoint (what most S3-alikes need)
  virtual_hosted,  ///< in the host name, where the bucket's name and the endpoint allow it
  path,            ///< always in the path
};

/// How failures are retried. Adaptive is standard with a limit of the client's own on its requests per second (see
/// rate_limiter); legacy is taken for standard.
enum class retry_mode { legacy, standard, adaptive };

/// Explicit values for a config: what is given here wins over the environment. Empty and absent mean "not given".
struct config_options {
  std::string_view region = {};
  std::string_view endpoint = {};
  addressing style = addressing::automatic;
  std::optional<bool> dual_stack = std::nullopt;
  std::optional<bool> fips = std::nullopt;
  std::optional<bool> use_arn_region = std::nullopt;
  std::optional<bool> global_us_east_1 = std::nullopt;
  std::string_view ca_bundle = {};
  std::optional<int> max_attempts = std::nullopt;
  std::optional<retry_mode> retries = std::nullopt;
  std::optional<bool> validate_checksums = std::nullopt;
  retry_options retry = {};  ///< pauses and costs of retries; attempts are counted by max_attempts above
  bool requester_pays = false;
};

/// Where and how to reach S3: everything but the credentials.
class config {
 public:
  /// Explicit values and defaults alone; reads no environment.
  explicit config(const config_options& given = config_options())
      : region(given.region),
        endpoint_url(given.endpoint),
        style(given.style),
        dual_stack(given.dual_stack.value_or(false)),
        fips(given.fips.value_or(false)),
        use_arn_region(given.use_arn_region.value_or(true)),
        global_us_east_1(given.global_us_east_1.value_or(false)),
        ca_bundle(given.ca_bundle),
        max_attempts(given.max_attempts.value_or(3)),
        retries(given.retries.value_or(retry_mode::standard)),
        validate_checksums(given.validate_checksums.value_or(true)),
        retry(given.retry),
        requester_pays(given.requester_pays) {
    if (max_attempts < 1) throw configuration_error("max_attempts must be at least 1");
  }

  /// Explicit values, then the variables of the AWS SDKs, then defaults. Throws configuration_error that names the
  /// variable whose value cannot be understood.
  static config from_environment(const environment& variables, const config_options& given = config_options());

  std::string region;        ///< AWS_REGION, AWS_DEFAULT_REGION; may be empty with a custom endpoint
  std::string endpoint_url;  ///< AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; empty: AWS itself
  addressing style;
  bool dual_stack;          ///< AWS_USE_DUALSTACK_ENDPOINT: hosts that have IPv6 addresses too
  bool fips;                ///< AWS_USE_FIPS_ENDPOINT
  bool use_arn_region;      ///< AWS_S3_USE_ARN_REGION: an access point may lie in another region
  bool global_us_east_1;    ///< AWS_S3_US_EAST_1_REGIONAL_ENDPOINT=legacy: s3.amazonaws.com for us-east-1
  std::string ca_bundle;    ///< AWS_CA_BUNDLE: path of a PEM file; empty: the system's
  int max_attempts;         ///< AWS_MAX_ATTEMPTS: the first try counts
  retry_mode retries;       ///< AWS_RETRY_MODE
  bool validate_checksums;  ///< objects that are read whole are compared with the checksum that the store keeps of them
  retry_options retry;      ///< pauses and costs; its max_attempts does not count
  bool requester_pays;      ///< every request says that its sender pays: what some buckets demand
};

// ---------------------------------------------------------------------------------------------- implementation

namespace detail {

inline bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

[[noreturn]] inline void bad_variable(const char* name, const std::string& value, const char* expected) {
  throw configuration_error(std::string(name) + " is \"" + value + "\": expected " + expected);
}

inline bool flag_of(const environment& variables, const char* name, bool otherwise) {
  const std::optional<std::string> value = variables.get(name);
  if (!value) return otherwise;
  if (equal_ignoring_case(*value, "true")) return true;
  if (equal_ignoring_case(*value, "false")) return false;
  bad_variable(name, *value, "true or false");
}

/// A number of attempts: 1 to 999.
inline std::optional<int> parse_attempts(std::string_view text) noexcept {
  if (text.empty() || text.size() > 3) return std::nullopt;
  int value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  if (value < 1) return std::nullopt;
  return value;
}

inline std::optional<retry_mode> parse_retry_mode(std::string_view text) noexcept {
  if (equal_ignoring_case(text, "standard")) return retry_mode::standard;
  if (equal_ignoring_case(text, "adaptive")) return retry_mode::adaptive;
  if (equal_ignoring_case(text, "legacy")) return retry_mode::legacy;
  return std::nullopt;
}

}  // namespace detail

inline config config::from_environment(const environment& variables, const config_options& given) {
  config result(given);
  const auto first_of = [&](const char* name, const char* fallback) {
    std::optional<std::string> value = variables.get(name);
    if (!value) value = variables.get(fallback);
    return value.value_or(std::string());
  };
  if (given.region.empty()) result.region = first_of("AWS_REGION", "AWS_DEFAULT_REGION");
  if (given.endpoint.empty() && !detail::flag_of(variables, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", false)) {
    result.endpoint_url = first_of("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
  }
  if (!given.dual_stack) result.dual_stack = detail::flag_of(variables, "AWS_USE_DUALSTACK_ENDPOINT", false);
  if (!given.fips) result.fips = detail::flag_of(variables, "AWS_USE_FIPS_ENDPOINT", false);
  if (!given.use_arn_region) result.use_arn_region = detail::flag_of(variables, "AWS_S3_USE_ARN_REGION", true);
  if (!given.global_us_east_1) {
    static constexpr const char* name = "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT";
    if (const std::optional<std::string> value = variables.get(name)) {
      result.global_us_east_1 = detail::equal_ignoring_case(*value, "legacy");
      if (!result.global_us_east_1 && !detail::equal_ignoring_case(*value, "regional")) {
        detail::bad_variable(name, *value, "legacy or regional");
      }
    }
  }
  if (given.ca_bundle.empty()) result.ca_bundle = variables.get("AWS_CA_BUNDLE").value_or(std::string());
  if (!given.max_attempts) {
    if (const std::optional<std::string> value = variables.get("AWS_MAX_ATTEMPTS")) {
      const std::optional<int> attempts = detail::parse_attempts(*value);
      if (!attempts) detail::bad_variable("AWS_MAX_ATTEMPTS", *value, "a number from 1 to 999");
      result.max_attempts = *attempts;
    }
  }
  if (!given.retries) {
    if (const std::optional<std::string> value = variables.get("AWS_RETRY_MODE")) {
      const std::optional<retry_mode> mode = detail::parse_retry_mode(*value);
      if (!mode) detail::bad_variable("AWS_RETRY_MODE", *value, "standard, adaptive or legacy");
      result.retries = *mode;
    }
  }
  return result;
}

}  // namespace millrace::s3
