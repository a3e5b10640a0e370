// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE std::optional<std::string_view> settings::service_property(std::string_view service,
                                                                           std::string_view name) const {
  const std::optional<std::string_view> section = property("services");
  if (!section) return std::nullopt;
  const profile* services = files_.find_services(*section);
  if (services == nullptr) {
    throw configuration_error(
        "profile " + profile_name() + " names the services section " + std::string(*section) + ", which is not there",
        where{location_.config_path, std::nullopt, std::string()});
  }
  return filled(services->find(service, name));
}

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE environment_copy::environment_copy(const environment& from) {
  static constexpr const char* names[] = {
      "HOME",
      "AWS_PROFILE",
      "AWS_CONFIG_FILE",
      "AWS_SHARED_CREDENTIALS_FILE",
      "AWS_ACCESS_KEY_ID",
      "AWS_SECRET_ACCESS_KEY",
      "AWS_SESSION_TOKEN",
      "AWS_SECURITY_TOKEN",
      "AWS_CREDENTIAL_EXPIRATION",
      "AWS_REGION",
      "AWS_DEFAULT_REGION",
      "AWS_ENDPOINT_URL",
      "AWS_ENDPOINT_URL_SSO",
      "AWS_ENDPOINT_URL_STS",
      "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
      "AWS_USE_DUALSTACK_ENDPOINT",
      "AWS_USE_FIPS_ENDPOINT",
      "AWS_ROLE_ARN",
      "AWS_ROLE_SESSION_NAME",
      "AWS_WEB_IDENTITY_TOKEN_FILE",
      "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
      "AWS_CONTAINER_CREDENTIALS_FULL_URI",
      "AWS_CONTAINER_AUTHORIZATION_TOKEN",
      "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
      "AWS_EC2_METADATA_DISABLED",
      "AWS_EC2_METADATA_SERVICE_ENDPOINT",
      "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
      "AWS_METADATA_SERVICE_TIMEOUT",
      "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
  };
  for (const char* name : names) {
    if (std::optional<std::string> value = from.get(name)) values_[name] = std::move(*value);
  }
}

MILLRACE_INLINE choice& choice::service(std::string_view section, std::string_view name) {
  const std::string at = std::string(section) + "." + std::string(name) + " of the services section";
  offer(at + in_profile(), owned(settings_->service_property(section, name)));
  return *this;
}

MILLRACE_INLINE bool choice::flag(bool otherwise) const {
  if (!value_) return otherwise;
  if (text::equal_ignoring_case(*value_, "true")) return true;
  if (!text::equal_ignoring_case(*value_, "false")) refuse("true or false");
  return false;
}

MILLRACE_INLINE bool choice::when_supported() const {
  if (!value_ || text::equal_ignoring_case(*value_, "when_supported")) return true;
  if (!text::equal_ignoring_case(*value_, "when_required")) refuse("when_supported or when_required");
  return false;
}

MILLRACE_INLINE void choice::offer(std::string name, std::optional<std::string> value) {
  places_.emplace_back(name, value.has_value());
  if (value_ || !value) return;
  value_ = std::move(value);
  source_ = std::move(name);
}

MILLRACE_INLINE bool ignores_endpoints(const settings& s) {
  return choice(s)
      .variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
      .property("ignore_configured_endpoint_urls")
      .flag(false);
}

MILLRACE_INLINE choice choose_endpoint(const settings& s, const char* variable, std::string_view service) {
  if (ignores_endpoints(s)) return choice(s);
  choice c(s);
  c.variable(variable).variable("AWS_ENDPOINT_URL");
  // The profile is not read if a variable sets it: a broken profile must not matter then.
  if (!c.value()) c.service(service, "endpoint_url").property("endpoint_url");
  return c;
}

MILLRACE_INLINE choice choose_dual_stack(const settings& s) {
  return choice(s)
      .variable("AWS_USE_DUALSTACK_ENDPOINT")
      .property("use_dualstack_endpoint")
      .property("s3", "use_dualstack_endpoint");
}

MILLRACE_INLINE choice choose_us_east_1(const settings& s) {
  return choice(s)
      .variable("AWS_S3_US_EAST_1_REGIONAL_ENDPOINT")
      .property("s3_us_east_1_regional_endpoint")
      .property("s3", "us_east_1_regional_endpoint");
}

}  // namespace millrace::s3::detail
