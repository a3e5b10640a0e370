// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

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

/// Copies of headers; made of an array, a vector or a span of header_field.
class owned_fields {
 public:
  owned_fields() = default;
  template <class Fields>
    requires std::convertible_to<const Fields&, std::span<const header_field>>
  owned_fields(const Fields& fields) {
    for (const header_field& f : std::span<const header_field>(fields)) {
      texts_.emplace_back(f.name);
      texts_.emplace_back(f.value);
    }
  }
  std::size_t size() const noexcept { return texts_.size() / 2; }
  const std::string& name(std::size_t i) const noexcept { return texts_[2 * i]; }
  const std::string& value(std::size_t i) const noexcept { return texts_[2 * i + 1]; }

 private:
  std::vector<std::string> texts_;  // a name, its value, and so on
};

/// The request that a signer signs: exactly the bytes that will be sent. It owns them.
struct signing_request {
  /// Upper case.
  std::string method = "GET";
  /// The Host header: lower case, with the port only when it is not the scheme's default, IPv6 in brackets.
  std::string host;
  /// Starts with `/`, encoded once, as sent.
  std::string path = "/";
  /// Encoded, as sent, without the `?`; parameters in any order.
  std::string query = {};
  /// Everything else that is sent and must not be altered on the way (range, if-match, x-amz-*). Host and the headers
  /// that the signer adds itself are refused; headers that proxies change (connection, user-agent, ...) are left
  /// unsigned.
  owned_fields headers = {};
  std::string region;
  std::string service = "s3";
  /// The session token goes as x-amz-s3session-token: the credentials are of a session with a directory bucket.
  bool bucket_session = false;
  /// Lower-case hexadecimal SHA-256 of the body, or unsigned_payload.
  std::string payload = std::string(empty_payload_sha256);
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
  std::string_view operator[](std::string_view name) const noexcept {
    for (const header_field& field : *this) {
      if (field.name == name) return field.value;
    }
    return {};
  }

  void add(std::string_view name, std::string_view value) noexcept { fields_[size_++] = header_field{name, value}; }

 private:
  std::array<header_field, 4> fields_{};
  std::size_t size_ = 0;
};

}  // namespace millrace::s3
