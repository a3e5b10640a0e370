// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/text/dates.hpp>

namespace millrace::s3 {

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
