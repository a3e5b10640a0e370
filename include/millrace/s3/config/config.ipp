// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/http/authorities.hpp>
#include <millrace/s3/config/config.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE config::config(const config_options& given)
    : region(given.region),
      endpoint_url(given.endpoint),
      style(given.style),
      dual_stack(false),
      fips(false),
      use_arn_region(true),
      global_us_east_1(false),
      ca_bundle(given.ca_bundle),
      max_attempts(given.max_attempts.value_or(3)),
      validate_checksums(given.validate_checksums.value_or(true)),
      send_checksums(true),
      retry(given.retry),
      requester_pays(given.requester_pays) {
  if (max_attempts < 1) throw configuration_error("max_attempts must be at least 1");
}

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE std::optional<int> parse_attempts(std::string_view text) noexcept {
  return text::parse_decimal<int>(text, 1, 999);
}

/// The modes differ in the SDKs; here all are the standard one.
inline bool is_retry_mode(std::string_view text) noexcept {
  return text::equal_ignoring_case(text, "standard") || text::equal_ignoring_case(text, "adaptive") ||
         text::equal_ignoring_case(text, "legacy");
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE config config::from_environment(const environment& variables, const config_options& given) {
  return from_settings(settings(variables), given);
}

MILLRACE_INLINE config config::from_settings(const settings& s, const config_options& given) {
  config result(given);
  if (given.region.empty()) result.region = detail::choose_region(s).value_or_empty();
  if (given.endpoint.empty()) {
    result.endpoint_url = detail::choose_endpoint(s, "AWS_ENDPOINT_URL_S3", "s3").value_or_empty();
  }
  if (given.style == addressing::automatic) {
    const detail::choice c = detail::choose_addressing(s);
    const std::string text = c.value_or_empty();
    if (text::equal_ignoring_case(text, "path")) {
      result.style = addressing::path;
    } else if (text::equal_ignoring_case(text, "virtual")) {
      result.style = addressing::virtual_hosted;
    } else if (!text.empty() && !text::equal_ignoring_case(text, "auto")) {
      c.refuse("path, virtual or auto");
    }
  }
  result.dual_stack = detail::choose_dual_stack(s).flag(false);
  result.fips = detail::choose_fips(s).flag(false);
  result.use_arn_region = detail::choose_use_arn_region(s).flag(true);
  if (const detail::choice c = detail::choose_us_east_1(s); c.value()) {
    result.global_us_east_1 = text::equal_ignoring_case(*c.value(), "legacy");
    if (!result.global_us_east_1 && !text::equal_ignoring_case(*c.value(), "regional")) c.refuse("legacy or regional");
  }
  if (given.ca_bundle.empty()) {
    const detail::choice c = detail::choose_ca_bundle(s);
    http::authority_choice found = http::authority_choice::from_environment(s.variables());
    if (c.value()) {
      found = http::authority_choice();
      found.file = http::expanded_path(s.variables(), *c.value());
      found.source = c.source();
    }
    result.ca_bundle = std::move(found.file);
    result.ca_directory = std::move(found.directory);
    result.ca_source = std::move(found.source);
  }
  if (!given.max_attempts) {
    if (const detail::choice c = detail::choose_attempts(s); c.value()) {
      const std::optional<int> attempts = detail::parse_attempts(*c.value());
      if (!attempts) c.refuse("a number from 1 to 999");
      result.max_attempts = *attempts;
    }
  }
  if (const detail::choice c = detail::choose_retry_mode(s); c.value() && !detail::is_retry_mode(*c.value())) {
    c.refuse("standard, adaptive or legacy");
  }
  if (!given.validate_checksums) result.validate_checksums = detail::choose_checksum_validation(s).when_supported();
  result.send_checksums = detail::choose_checksum_calculation(s).when_supported();
  return result;
}

}  // namespace millrace::s3
