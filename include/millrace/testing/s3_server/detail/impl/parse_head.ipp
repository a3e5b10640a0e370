// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/parse_head.hpp>
#include <millrace/testing/s3_server/detail/percent.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE bool is_token(std::string_view text) noexcept {
  for (char c : text) {
    const bool alphanumeric = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!alphanumeric && std::string_view("!#$%&'*+-.^_`|~").find(c) == std::string_view::npos) return false;
  }
  return !text.empty();
}

MILLRACE_INLINE const char* parse_fields(std::string_view text, std::vector<request::pair>& out) {
  while (!text.empty()) {
    const std::size_t end = text.find("\r\n");
    if (end == std::string_view::npos) return "a header line does not end in CR LF";
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return "a header line has no valid name";
    const std::string_view value = trim(line.substr(colon + 1));
    for (char c : value) {
      const auto u = static_cast<unsigned char>(c);
      if ((u < 0x20 && c != '\t') || u == 0x7f) return "a header value has a control character";
    }
    out.emplace_back(lower_case(line.substr(0, colon)), std::string(value));
  }
  return nullptr;
}

/// Splits and decodes the query of `r`; false for a broken percent escape.
MILLRACE_INLINE bool parse_query(request& r) {
  const std::string_view raw = r.raw_query();
  if (raw.empty()) return true;
  for (std::string_view part : split(raw, '&')) {
    const std::size_t equals = part.find('=');
    std::optional<std::string> name = percent_decode(part.substr(0, equals));
    std::optional<std::string> value =
        percent_decode(equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1));
    if (!name || !value) return false;
    r.query.emplace_back(std::move(*name), std::move(*value));
  }
  return true;
}

MILLRACE_INLINE const char* parse_head(std::string_view text, request& r) {
  const std::size_t end = text.find("\r\n");
  if (end == std::string_view::npos) return "the request line does not end in CR LF";
  const auto words = split(text.substr(0, end), ' ');
  if (words.size() != 3 || !is_token(words[0])) return "the request line is not METHOD TARGET VERSION";
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") return "the version is not HTTP/1.0 or HTTP/1.1";
  if (words[1].empty() || words[1].front() != '/') return "the request target is not an absolute path";
  for (char c : words[1]) {
    const auto u = static_cast<unsigned char>(c);
    if (u <= 0x20 || u >= 0x7f || c == '#') return "the request target has a character that must be percent-encoded";
  }
  r.method = std::string(words[0]);
  r.target = std::string(words[1]);
  r.minor_version = words[2].back() - '0';
  if (const char* wrong = parse_fields(text.substr(end + 2), r.fields)) return wrong;
  if (r.minor_version == 1 && r.count("host") != 1) return "the request does not have exactly one Host";
  if (!parse_query(r) || !percent_decode(r.raw_path())) return "the request target has a broken percent escape";
  return nullptr;
}

}  // namespace millrace::s3_server::detail
