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

namespace millrace::s3::detail {

/// One setting, and all the places that could have said it, in their order: the first that does wins. `settings` is
/// s3::settings.
class choice {
 public:
  class place {
   public:
    place(std::string n, bool s) : name(std::move(n)), set(s) {}
    std::string name;
    bool set;
  };

  explicit choice(const settings& s) : settings_(&s) {}

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
  choice& service(std::string_view section, std::string_view name);

  const std::optional<std::string>& value() const noexcept { return value_; }
  std::string value_or_empty() const { return value_.value_or(std::string()); }
  /// Who said it; empty when nobody did.
  const std::string& source() const noexcept { return source_; }
  const std::vector<place>& places() const noexcept { return places_; }

  [[noreturn]] void refuse(const char* expected) const {
    throw configuration_error(source_ + " is \"" + value_or_empty() + "\": expected " + expected);
  }
  bool flag(bool otherwise) const;
  /// Whether checksums are used wherever the store supports them (also when nobody said anything), not only where it
  /// demands them. "Data Integrity Protections for Amazon S3" of the AWS SDKs and Tools Reference Guide.
  bool when_supported() const;

 private:
  static std::optional<std::string> owned(std::optional<std::string_view> text) {
    if (!text) return std::nullopt;
    return std::string(*text);
  }
  std::string in_profile() const { return " of profile " + settings_->profile_name(); }
  void offer(std::string name, std::optional<std::string> value);

  const settings* settings_;
  std::optional<std::string> value_;
  std::string source_;
  std::vector<place> places_;
};

inline choice choose_region(const settings& s) {
  return choice(s).variable("AWS_REGION").variable("AWS_DEFAULT_REGION").property("region");
}
bool ignores_endpoints(const settings& s);
/// `service` as in AWS_ENDPOINT_URL_<variable> and in a services section.
choice choose_endpoint(const settings& s, const char* variable, std::string_view service);
choice choose_dual_stack(const settings& s);
inline choice choose_fips(const settings& s) {
  return choice(s).variable("AWS_USE_FIPS_ENDPOINT").property("use_fips_endpoint");
}
inline choice choose_use_arn_region(const settings& s) {
  return choice(s).variable("AWS_S3_USE_ARN_REGION").property("s3_use_arn_region").property("s3", "use_arn_region");
}
choice choose_us_east_1(const settings& s);
inline choice choose_addressing(const settings& s) { return choice(s).property("s3", "addressing_style"); }
inline choice choose_ca_bundle(const settings& s) { return choice(s).variable("AWS_CA_BUNDLE").property("ca_bundle"); }
inline choice choose_attempts(const settings& s) {
  return choice(s).variable("AWS_MAX_ATTEMPTS").property("max_attempts");
}
inline choice choose_retry_mode(const settings& s) {
  return choice(s).variable("AWS_RETRY_MODE").property("retry_mode");
}
inline choice choose_checksum_validation(const settings& s) {
  return choice(s).variable("AWS_RESPONSE_CHECKSUM_VALIDATION").property("response_checksum_validation");
}
inline choice choose_checksum_calculation(const settings& s) {
  return choice(s).variable("AWS_REQUEST_CHECKSUM_CALCULATION").property("request_checksum_calculation");
}

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/detail/impl/choices.ipp>
#endif
