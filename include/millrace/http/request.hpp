// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <millrace/http/headers.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::http {

/// The bytes [first, last] of an object, both included (RFC 9110, 14.1.2).
struct byte_range {
  std::uint64_t first;
  std::uint64_t last;
  std::uint64_t size() const noexcept { return last - first + 1; }
  std::string header_value() const { return "bytes=" + std::to_string(first) + "-" + std::to_string(last); }
};

/// One request. The URL is sent as it is: no normalisation, no re-encoding, no redirect is followed.
class request {
 public:
  explicit request(std::string request_url) : url(std::move(request_url)) {}
  request(std::string request_method, std::string request_url)
      : method(std::move(request_method)), url(std::move(request_url)) {}

  std::string method = "GET";
  std::string url;
  headers fields;
  bytes body;
  /// What the answer is checked against when set; the Range header is added by the exchange, unless `fields` has it.
  std::optional<byte_range> range;
};

}  // namespace millrace::http
