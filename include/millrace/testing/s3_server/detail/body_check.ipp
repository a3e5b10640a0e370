// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/testing/s3_server/detail/body_check.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/message.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

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
  std::string_view target = words[1];
  if (target.starts_with("http://")) {  // RFC 9112, 3.2.2: a server takes this form, too
    const std::size_t path = target.find('/', 7);
    target = path == std::string_view::npos ? std::string_view() : target.substr(path);
  }
  if (target.empty() || target.front() != '/') return "the request target is not an absolute path";
  for (char c : target) {
    const auto u = static_cast<unsigned char>(c);
    if (u <= 0x20 || u >= 0x7f || c == '#') return "the request target has a character that must be percent-encoded";
  }
  r.method = std::string(words[0]);
  r.target = std::string(target);
  r.minor_version = words[2].back() - '0';
  if (const char* wrong = parse_fields(text.substr(end + 2), r.fields)) return wrong;
  if (r.minor_version == 1 && r.count("host") != 1) return "the request does not have exactly one Host";
  if (!parse_query(r) || !percent_decode(r.raw_path())) return "the request target has a broken percent escape";
  return nullptr;
}

MILLRACE_INLINE std::optional<std::uint64_t> parse_chunk_size(std::string_view line) {
  const std::string_view digits = line.substr(0, line.find(';'));
  if (digits.empty() || digits.size() > 15) return std::nullopt;
  std::uint64_t value = 0;
  for (char c : digits) {
    const char l = lower(c);
    if (!((l >= '0' && l <= '9') || (l >= 'a' && l <= 'f'))) return std::nullopt;
    value = value * 16 + static_cast<std::uint64_t>(l <= '9' ? l - '0' : l - 'a' + 10);
  }
  return value;
}

/// Decodes a body in S3's own chunked form (`Content-Encoding: aws-chunked`); its trailing fields are moved to
/// `r.trailer`.
MILLRACE_INLINE void decode_aws_chunks(request& r) {
  const auto broken = [] { return refusal(400, "IncompleteBody", "The aws-chunked body is malformed"); };
  std::string_view rest = r.body.view();
  writable_bytes decoded = writable_bytes::allocate(rest.size() + 1);
  std::size_t size = 0;
  for (;;) {
    const std::size_t end = rest.find("\r\n");
    if (end == std::string_view::npos) throw broken();
    const auto chunk = parse_chunk_size(rest.substr(0, end));
    if (!chunk) throw broken();
    rest.remove_prefix(end + 2);
    if (*chunk == 0) break;
    if (rest.size() < *chunk + 2 || rest.substr(*chunk, 2) != "\r\n") throw broken();
    std::memcpy(decoded.data() + size, rest.data(), *chunk);
    size += *chunk;
    rest.remove_prefix(*chunk + 2);
  }
  const std::size_t end = rest.rfind("\r\n");
  if (end == std::string_view::npos || parse_fields(rest.substr(0, end), r.trailer) != nullptr) throw broken();
  const std::string* declared = r.field("x-amz-decoded-content-length");
  if (declared == nullptr || parse_number(*declared) != std::optional<std::uint64_t>(size)) throw broken();
  r.body = decoded.share(0, size);
}

MILLRACE_INLINE std::vector<request::pair> check_body(request& r, std::string_view payload) {
  if (payload == "STREAMING-UNSIGNED-PAYLOAD-TRAILER") {
    decode_aws_chunks(r);
  } else if (payload != "UNSIGNED-PAYLOAD") {
    const std::string computed = to_hex(digest_of("SHA256", r.body.view()));
    if (computed != payload) {
      throw refusal(400, "XAmzContentSHA256Mismatch",
                    "The provided 'x-amz-content-sha256' header does not match what was computed.")
          .with("ClientComputedContentSHA256", std::string(payload))
          .with("S3ComputedContentSHA256", computed);
    }
  }
  if (const std::string* sent = r.field("content-md5")) {
    if (*sent != to_base64(digest_of("MD5", r.body.view()))) {
      throw refusal(400, "BadDigest", "The Content-MD5 you specified did not match what we received.");
    }
  }
  constexpr std::string_view prefix = "x-amz-checksum-";
  std::vector<request::pair> kept;
  for (const auto* fields : {&r.fields, &r.trailer}) {
    for (const auto& [name, value] : *fields) {
      if (name.compare(0, prefix.size(), prefix) != 0) continue;
      const std::string expected = checksum_of(std::string_view(name).substr(prefix.size()), r.body.view());
      if (expected.empty()) continue;  // x-amz-checksum-mode and the like
      if (value != to_base64(expected)) {
        throw refusal(400, "BadDigest", "The " + name + " you specified did not match the calculated checksum.");
      }
      kept.emplace_back(name, value);
    }
  }
  return kept;
}

}  // namespace millrace::s3_server::detail
