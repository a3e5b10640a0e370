// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/json_leaves.hpp>

namespace millrace::s3::detail {

/// Reads the JSON form of credentials, of instance metadata, containers (`token_name` Token) and processes
/// (SessionToken). Nothing when `text` is no JSON object with a key and a secret; throws configuration_error when a
/// part is there and cannot be right. No message repeats a value.
inline std::optional<credentials> json_credentials(const text::json_leaves& answer, const char* token_name,
                                                   const where& at) {
  const auto part = [&](std::string_view name) { return answer.find(name).value_or(std::string_view()); };
  const std::string_view key = part("AccessKeyId");
  const std::string_view secret = part("SecretAccessKey");
  if (key.empty() || secret.empty()) return std::nullopt;
  std::optional<std::int64_t> end;
  if (const std::optional<std::string_view> text = answer.find("Expiration")) {
    end = text::parse_iso8601(*text);
    if (!end) throw configuration_error("Expiration is not a date like 2026-01-31T12:00:00Z", at);
  }
  try {
    return credentials(key, secret, part(token_name), end);
  } catch (const configuration_error& e) {
    throw configuration_error(e.reason(), at);
  }
}

}  // namespace millrace::s3::detail
