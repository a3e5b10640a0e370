// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/text/ascii.hpp>

namespace millrace::s3::detail {

/// One setting, and all the places that could have said it, in their order: the first that does wins. `Settings` is
/// s3::settings.
template <class Settings>
class choice {
 public:
  class place {
   public:
    place(std::string n, bool s) : name(std::move(n)), set(s) {}
    std::string name;
    bool set;
  };

  explicit choice(const Settings& s) : settings_(&s) {}

  choice& variable(const char* name) {
    offer(name, settings_->variable(name));
    return *this;
  }
  choice& property(std::string_view name) {
    offer(std::string(name) + in_profile(), owned(settings_->property(name)));
    return *this;
  }
  choice& property(std::string_view block, std::string_view name) {
    offer(std::string(block) + "." + std::string(name) + in_profile(), owned(settings_->property(block, name)));
    return *this;
  }
  choice& service(std::string_view section, std::string_view name) {
    const std::string at = std::string(section) + "." + std::string(name) + " of the services section";
    offer(at + in_profile(), owned(settings_->service_property(section, name)));
    return *this;
  }

  const std::optional<std::string>& value() const noexcept { return value_; }
  std::string value_or_empty() const { return value_.value_or(std::string()); }
  /// Who said it; empty when nobody did.
  const std::string& source() const noexcept { return source_; }
  const std::vector<place>& places() const noexcept { return places_; }

  [[noreturn]] void refuse(const char* expected) const {
    throw configuration_error(source_ + " is \"" + value_or_empty() + "\": expected " + expected);
  }
  bool flag(bool otherwise) const {
    if (!value_) return otherwise;
    if (text::equal_ignoring_case(*value_, "true")) return true;
    if (!text::equal_ignoring_case(*value_, "false")) refuse("true or false");
    return false;
  }
  /// Whether checksums are used wherever the store supports them (also when nobody said anything), not only where it
  /// demands them. "Data Integrity Protections for Amazon S3" of the AWS SDKs and Tools Reference Guide.
  bool when_supported() const {
    if (!value_ || text::equal_ignoring_case(*value_, "when_supported")) return true;
    if (!text::equal_ignoring_case(*value_, "when_required")) refuse("when_supported or when_required");
    return false;
  }

 private:
  static std::optional<std::string> owned(std::optional<std::string_view> text) {
    if (!text) return std::nullopt;
    return std::string(*text);
  }
  std::string in_profile() const { return " of profile " + settings_->profile_name(); }
  void offer(std::string name, std::optional<std::string> value) {
    places_.emplace_back(name, value.has_value());
    if (value_ || !value) return;
    value_ = std::move(value);
    source_ = std::move(name);
  }

  const Settings* settings_;
  std::optional<std::string> value_;
  std::string source_;
  std::vector<place> places_;
};

template <class Settings>
choice<Settings> choose_region(const Settings& s) {
  return choice(s).variable("AWS_REGION").variable("AWS_DEFAULT_REGION").property("region");
}
template <class Settings>
bool ignores_endpoints(const Settings& s) {
  return choice(s)
      .variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
      .property("ignore_configured_endpoint_urls")
      .flag(false);
}
/// `service` as in AWS_ENDPOINT_URL_<variable> and in a services section.
template <class Settings>
choice<Settings> choose_endpoint(const Settings& s, const char* variable, std::string_view service) {
  if (ignores_endpoints(s)) return choice(s);
  choice c(s);
  c.variable(variable).variable("AWS_ENDPOINT_URL");
  // The profile is not even looked at when a variable says it: a broken one must not be in its way.
  if (!c.value()) c.service(service, "endpoint_url").property("endpoint_url");
  return c;
}
template <class Settings>
choice<Settings> choose_dual_stack(const Settings& s) {
  return choice(s)
      .variable("AWS_USE_DUALSTACK_ENDPOINT")
      .property("use_dualstack_endpoint")
      .property("s3", "use_dualstack_endpoint");
}
template <class Settings>
choice<Settings> choose_fips(const Settings& s) {
  return choice(s).variable("AWS_USE_FIPS_ENDPOINT").property("use_fips_endpoint");
}
template <class Settings>
choice<Settings> choose_use_arn_region(const Settings& s) {
  return choice(s).variable("AWS_S3_USE_ARN_REGION").property("s3_use_arn_region").property("s3", "use_arn_region");
}
template <class Settings>
choice<Settings> choose_us_east_1(const Settings& s) {
  return choice(s)
      .variable("AWS_S3_US_EAST_1_REGIONAL_ENDPOINT")
      .property("s3_us_east_1_regional_endpoint")
      .property("s3", "us_east_1_regional_endpoint");
}
template <class Settings>
choice<Settings> choose_addressing(const Settings& s) {
  return choice(s).property("s3", "addressing_style");
}
template <class Settings>
choice<Settings> choose_ca_bundle(const Settings& s) {
  return choice(s).variable("AWS_CA_BUNDLE").property("ca_bundle");
}
template <class Settings>
choice<Settings> choose_attempts(const Settings& s) {
  return choice(s).variable("AWS_MAX_ATTEMPTS").property("max_attempts");
}
template <class Settings>
choice<Settings> choose_retry_mode(const Settings& s) {
  return choice(s).variable("AWS_RETRY_MODE").property("retry_mode");
}
template <class Settings>
choice<Settings> choose_checksum_validation(const Settings& s) {
  return choice(s).variable("AWS_RESPONSE_CHECKSUM_VALIDATION").property("response_checksum_validation");
}
template <class Settings>
choice<Settings> choose_checksum_calculation(const Settings& s) {
  return choice(s).variable("AWS_REQUEST_CHECKSUM_CALCULATION").property("request_checksum_calculation");
}

}  // namespace millrace::s3::detail
