// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include <millrace/version.hpp>

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

/// What a signer signs: exactly the bytes that will be sent. Only views; what they refer to must live until the call
/// returns.
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

/// The headers that a signature adds to a request, to be sent as they are. Never log them: they carry the signature
/// and the session token.
class signed_headers {
 public:
  signed_headers() = default;

  const header_field* begin() const noexcept { return fields_.data(); }
  const header_field* end() const noexcept { return fields_.data() + size_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  /// The value of one of them, by lower-case name; empty when absent.
  std::string_view operator[](std::string_view name) const noexcept;

  void add(std::string_view name, std::string_view value) noexcept { fields_[size_++] = header_field{name, value}; }

 private:
  std::array<header_field, 4> fields_{};
  std::size_t size_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline std::string_view signed_headers::operator[](std::string_view name) const noexcept {
  for (const header_field& field : *this) {
    if (field.name == name) return field.value;
  }
  return {};
}

}  // namespace millrace::s3
