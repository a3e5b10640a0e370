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
      dual_stack(given.dual_stack.value_or(false)),
      fips(given.fips.value_or(false)),
      use_arn_region(given.use_arn_region.value_or(true)),
      global_us_east_1(given.global_us_east_1.value_or(false)),
      ca_bundle(given.ca_bundle),
      max_attempts(given.max_attempts.value_or(3)),
      retries(given.retries.value_or(retry_mode::standard)),
      validate_checksums(given.validate_checksums.value_or(true)),
      send_checksums(given.send_checksums.value_or(true)),
      retry(given.retry),
      requester_pays(given.requester_pays) {
  if (max_attempts < 1) throw configuration_error("max_attempts must be at least 1");
}

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE std::optional<int> parse_attempts(std::string_view text) noexcept {
  return text::parse_decimal<int>(text, 1, 999);
}

MILLRACE_INLINE std::optional<retry_mode> parse_retry_mode(std::string_view text) noexcept {
  if (text::equal_ignoring_case(text, "standard")) return retry_mode::standard;
  if (text::equal_ignoring_case(text, "adaptive")) return retry_mode::adaptive;
  if (text::equal_ignoring_case(text, "legacy")) return retry_mode::legacy;
  return std::nullopt;
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
  if (!given.dual_stack) result.dual_stack = detail::choose_dual_stack(s).flag(false);
  if (!given.fips) result.fips = detail::choose_fips(s).flag(false);
  if (!given.use_arn_region) result.use_arn_region = detail::choose_use_arn_region(s).flag(true);
  if (!given.global_us_east_1) {
    if (const detail::choice c = detail::choose_us_east_1(s); c.value()) {
      result.global_us_east_1 = text::equal_ignoring_case(*c.value(), "legacy");
      if (!result.global_us_east_1 && !text::equal_ignoring_case(*c.value(), "regional")) {
        c.refuse("legacy or regional");
      }
    }
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
  if (!given.retries) {
    if (const detail::choice c = detail::choose_retry_mode(s); c.value()) {
      const std::optional<retry_mode> mode = detail::parse_retry_mode(*c.value());
      if (!mode) c.refuse("standard, adaptive or legacy");
      result.retries = *mode;
    }
  }
  if (!given.validate_checksums) result.validate_checksums = detail::choose_checksum_validation(s).when_supported();
  if (!given.send_checksums) result.send_checksums = detail::choose_checksum_calculation(s).when_supported();
  return result;
}

}  // namespace millrace::s3
