// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/config/detail/environment_copy.hpp>

namespace millrace::s3::detail {

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

}  // namespace millrace::s3::detail
