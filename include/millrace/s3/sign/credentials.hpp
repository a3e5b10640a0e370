// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// One immutable snapshot of the credentials that sign requests: access key, secret, session token, moment of expiry.
///
/// Copies share the snapshot, on any thread: a signature can never mix the key of one refresh with the token of
/// another. The memory is overwritten when the last copy goes. A default-constructed value is anonymous: requests go
/// out without any authorization. Nothing prints a secret, errors least of all.
class credentials {
 public:
  /// Anonymous.
  credentials() noexcept = default;

  /// Throws configuration_error when a part is empty that must not be or holds characters that no header may carry
  /// (they come from files, the environment and JSON). The message never contains the value.
  credentials(std::string_view access_key_id, std::string_view secret_access_key, std::string_view session_token = {},
              std::optional<std::int64_t> expires_at = std::nullopt);

  static credentials anonymous() noexcept { return credentials(); }

  bool is_anonymous() const noexcept { return parts_ == nullptr; }

  /// The views are valid as long as any copy of this snapshot; empty when anonymous.
  std::string_view access_key_id() const noexcept;
  std::string_view secret_access_key() const noexcept;
  /// Empty for long-lived keys.
  std::string_view session_token() const noexcept;
  /// Unix seconds; nothing for keys that never expire.
  std::optional<std::int64_t> expires_at() const noexcept;

  /// True when the keys end within `seconds` of the unix time `now`.
  bool expires_within(std::int64_t seconds, std::int64_t now) const noexcept {
    const std::optional<std::int64_t> end = expires_at();
    return end && *end - now <= seconds;
  }

  /// The very same snapshot (not merely equal text).
  bool same_snapshot(const credentials& other) const noexcept { return parts_ == other.parts_; }

 private:
  struct parts;

  std::shared_ptr<const parts> parts_;
};

/// The program's own key that the store encrypts objects with and does not keep (SSE-C): AES-256. Copies share it; its
/// memory is overwritten when the last copy goes. Nothing prints it.
class customer_key {
 public:
  /// None.
  customer_key() noexcept = default;

  /// Throws configuration_error unless `key` has 32 bytes; the message does not contain it.
  explicit customer_key(std::string_view key);

  explicit operator bool() const noexcept { return !texts_.is_anonymous(); }

  /// The values of x-amz-server-side-encryption-customer-key and -key-MD5; empty without a key. The views are valid as
  /// long as any copy.
  std::string_view base64() const noexcept { return texts_.secret_access_key(); }
  std::string_view md5() const noexcept { return texts_.access_key_id(); }

 private:
  credentials texts_;  // shares and overwrites them: the MD5 is the name of the secret
};

/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN (else the old AWS_SECURITY_TOKEN) and
/// AWS_CREDENTIAL_EXPIRATION. Nothing when neither half of the key pair is set (blank counts as unset); half a pair or
/// an expiration that is no date is an error and not a reason to look elsewhere.
std::optional<credentials> credentials_from_environment(const environment& variables);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/sign/credentials.ipp>
#endif
