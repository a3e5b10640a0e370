// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/shown_url.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/config/detail/endpoint_url.hpp>
#include <millrace/s3/config/detail/host_name.hpp>
#include <millrace/s3/sign/detail/canonical_path.hpp>
#include <millrace/text/ascii.hpp>
#include <millrace/text/numbers.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE endpoint_url endpoint_url::parse(std::string_view text) {
  endpoint_url out;
  std::string_view rest = text;
  if (rest.substr(0, 8) == "https://") {
    out.scheme_ = "https";
  } else if (rest.substr(0, 7) == "http://") {
    out.scheme_ = "http";
  } else {
    refuse(text, "it must start with http:// or https://");
  }
  rest.remove_prefix(out.scheme_.size() + 3);
  if (rest.find_first_of("?#") != std::string_view::npos) refuse(text, "it must not have a query or a fragment");
  const std::size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? std::string_view() : rest.substr(slash);
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (!is_encoded_path(path)) refuse(text, "its path is not percent-encoded");
  out.prefix_ = path;
  if (authority.find('@') != std::string_view::npos) refuse(std::string_view(), "it must not contain user info");

  std::string_view port;
  if (!authority.empty() && authority.front() == '[') {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) refuse(text, "its IPv6 address lacks the ]");
    const std::string_view address = authority.substr(1, end - 1);
    if (address.find(':') == std::string_view::npos ||
        address.find_first_not_of("0123456789abcdefABCDEF:.") != std::string_view::npos) {
      refuse(text, "it has no IPv6 address between the brackets");
    }
    out.is_address_ = true;
    port = authority.substr(end + 1);
    authority = authority.substr(0, end + 1);
    if (!port.empty() && port.front() != ':') refuse(text, "something follows its IPv6 address");
  } else {
    const std::size_t colon = authority.find(':');
    if (colon != std::string_view::npos) {
      port = authority.substr(colon);
      authority = authority.substr(0, colon);
    }
    out.is_address_ = is_ipv4(authority);
  }
  if (authority.empty()) refuse(text, "it names no host");
  for (char c : authority) {
    const auto u = static_cast<unsigned char>(c);
    if (u <= 0x20 || u >= 0x7f || std::string_view("\"<>\\^`{|}%").find(c) != std::string_view::npos) {
      refuse(text, "its host has a character that no host name has");
    }
    out.host_ += text::to_lower(c);
  }
  if (!port.empty()) out.set_port(port.substr(1), text);
  return out;
}

MILLRACE_INLINE void endpoint_url::refuse(std::string_view text, const char* why) {
  where at;
  at.object = millrace::detail::without_secrets(std::string(text));
  throw configuration_error(std::string("not a usable endpoint URL: ") + why, at);
}

MILLRACE_INLINE void endpoint_url::set_port(std::string_view digits, std::string_view text) {
  const std::optional<unsigned> value = text::parse_decimal<unsigned>(digits, 1, 65535);
  if (!value) refuse(text, "its port is not a number from 1 to 65535");
  if (*value != (scheme_ == "https" ? 443u : 80u)) port_ = ":" + std::to_string(*value);
}

}  // namespace millrace::s3::detail
