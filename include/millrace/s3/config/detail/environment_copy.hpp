// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <optional>
#include <string>
#include <utility>

#include <millrace/base/environment.hpp>
#include <millrace/s3/config/detail/name_table.hpp>

namespace millrace::s3::detail {

/// The variables that credentials may come from, as they were when this was made: what is refreshed hours later must
/// neither depend on a table that has gone nor call getenv(3) beside threads. Overwritten on destruction.
template <class = void>
class environment_copy {
 public:
  explicit environment_copy(const environment& from) {
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
  environment_copy(const environment_copy&) = delete;
  environment_copy& operator=(const environment_copy&) = delete;
  ~environment_copy() {
    for (const auto& v : values_.entries()) OPENSSL_cleanse(v->value.data(), v->value.size());
  }

  /// Good as long as this object; to be read from any thread.
  environment view() noexcept { return environment(&look_up, this); }

 private:
  static const char* look_up(void* self, const char* name) {
    const std::string* const found = static_cast<const environment_copy*>(self)->values_.find(name);
    return found == nullptr ? nullptr : found->c_str();
  }

  name_table<std::string> values_;
};

}  // namespace millrace::s3::detail
