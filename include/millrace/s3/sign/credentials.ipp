// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/text/dates.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

struct credentials::parts {
  parts(std::string_view key, std::string_view secret_key, std::string_view session, std::optional<std::int64_t> end)
      : access_key_id(checked(key, "access key id", 0x21)),
        secret(checked(secret_key, "secret access key", 0x20)),
        token(session.empty() ? session : checked(session, "session token", 0x21)),
        expires_at(end) {}
  parts(const parts&) = delete;
  parts& operator=(const parts&) = delete;
  ~parts() {
    OPENSSL_cleanse(secret.data(), secret.size());
    OPENSSL_cleanse(token.data(), token.size());
  }

  static std::string_view checked(std::string_view text, const char* name, unsigned char lowest);

  std::string access_key_id;
  std::string secret;
  std::string token;
  std::optional<std::int64_t> expires_at;
};

MILLRACE_INLINE credentials::credentials(std::string_view access_key_id, std::string_view secret_access_key,
                                         std::string_view session_token, std::optional<std::int64_t> expires_at)
    : parts_(std::make_shared<const parts>(access_key_id, secret_access_key, session_token, expires_at)) {}

MILLRACE_INLINE std::string_view credentials::access_key_id() const noexcept {
  return parts_ ? parts_->access_key_id : std::string_view();
}
MILLRACE_INLINE std::string_view credentials::secret_access_key() const noexcept {
  return parts_ ? parts_->secret : std::string_view();
}
MILLRACE_INLINE std::string_view credentials::session_token() const noexcept {
  return parts_ ? parts_->token : std::string_view();
}
MILLRACE_INLINE std::optional<std::int64_t> credentials::expires_at() const noexcept {
  return parts_ ? parts_->expires_at : std::nullopt;
}

MILLRACE_INLINE std::string_view credentials::parts::checked(std::string_view text, const char* name,
                                                             unsigned char lowest) {
  if (text.empty()) throw configuration_error(std::string("the ") + name + " is empty");
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < lowest || u >= 0x7f) {
      throw configuration_error(std::string("the ") + name +
                                " contains white space, a line end or another character that no key has");
    }
  }
  return text;
}

MILLRACE_INLINE customer_key::customer_key(std::string_view key) {
  if (key.size() != 32) throw configuration_error("a customer-provided key (SSE-C) has 32 bytes");
  const auto* const data = reinterpret_cast<const unsigned char*>(key.data());
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  if (EVP_Digest(data, key.size(), sum, &length, EVP_md5(), nullptr) != 1) {
    throw configuration_error("a customer-provided key (SSE-C) is sent with its MD5, which OpenSSL does not compute");
  }
  unsigned char base64[48];  // texts that OpenSSL ends with a NUL
  unsigned char md5[48];
  EVP_EncodeBlock(base64, data, static_cast<int>(key.size()));
  EVP_EncodeBlock(md5, sum, static_cast<int>(length));
  texts_ = credentials(reinterpret_cast<const char*>(md5), reinterpret_cast<const char*>(base64));
  OPENSSL_cleanse(base64, sizeof base64);
}

MILLRACE_INLINE std::optional<credentials> credentials_from_environment(const environment& variables) {
  std::optional<std::string> key = variables.get("AWS_ACCESS_KEY_ID");
  std::optional<std::string> secret = variables.get("AWS_SECRET_ACCESS_KEY");
  if (!key && !secret) return std::nullopt;
  if (!secret) throw configuration_error("AWS_ACCESS_KEY_ID is set but AWS_SECRET_ACCESS_KEY is not");
  std::optional<std::string> token = variables.get("AWS_SESSION_TOKEN");
  if (!token) token = variables.get("AWS_SECURITY_TOKEN");
  // The copies made here are overwritten too, whatever happens below.
  struct wipe {
    explicit wipe(std::string* t) noexcept : text(t) {}
    ~wipe() {
      if (text != nullptr) OPENSSL_cleanse(text->data(), text->size());
    }
    std::string* text;
  };
  const wipe wipe_secret(&*secret);
  const wipe wipe_token(token ? &*token : nullptr);
  if (!key) throw configuration_error("AWS_SECRET_ACCESS_KEY is set but AWS_ACCESS_KEY_ID is not");
  std::optional<std::int64_t> expires_at;
  if (const std::optional<std::string> text = variables.get("AWS_CREDENTIAL_EXPIRATION")) {
    expires_at = text::parse_iso8601(*text);
    if (!expires_at) throw configuration_error("AWS_CREDENTIAL_EXPIRATION is not a date like 2026-01-31T12:00:00Z");
  }
  return credentials(*key, *secret, token ? std::string_view(*token) : std::string_view(), expires_at);
}

}  // namespace millrace::s3
