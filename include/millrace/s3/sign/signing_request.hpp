// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace millrace::s3 {

/// A header as it goes over the wire; the views refer to memory of the caller.
struct header_field {
  std::string_view name;
  std::string_view value;
};

/// The payload line of every request without a body: SHA-256 of nothing.
inline constexpr std::string_view empty_payload_sha256 =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The payload line of a body that the signature does not cover, and of presigned URLs.
inline constexpr std::string_view unsigned_payload = "UNSIGNED-PAYLOAD";

/// What a signer signs: exactly the bytes that will be sent. Only views; everything behind them must live until the
/// call returns.
struct signing_request {
  /// Upper case.
  std::string_view method = "GET";
  /// The Host header: lower case, with the port only when it is not the scheme's default, IPv6 in brackets.
  std::string_view host;
  /// Starts with `/`, encoded once, as sent.
  std::string_view path = "/";
  /// Encoded, as sent, without the `?`; parameters in any order.
  std::string_view query = {};
  /// Everything else that is sent and must not be altered on the way (range, if-match, x-amz-*). Host and what the
  /// signer adds itself are refused; headers that proxies change (connection, user-agent, ...) are left unsigned.
  std::span<const header_field> headers = {};
  std::string_view region;
  std::string_view service = "s3";
  /// Lower-case hexadecimal SHA-256 of the body, or unsigned_payload.
  std::string_view payload = empty_payload_sha256;
};

}  // namespace millrace::s3
