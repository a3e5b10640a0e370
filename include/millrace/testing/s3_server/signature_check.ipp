// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/message.hpp>
#include <millrace/testing/s3_server/signature_check.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

/// Refuses text that differs from SigV4's own encoding of its bytes: lower-case hexadecimal, a bare `+`, an escaped
/// letter. S3 would encode it again before comparing; a signer that depends on that is one bug away from a 403.
MILLRACE_INLINE void require_canonical(std::string_view text, bool keep_slash, const char* what) {
  const std::optional<std::string> decoded = percent_decode(text);
  if (!decoded || percent_encode(*decoded, keep_slash) != text) {
    throw refusal(403, "SignatureDoesNotMatch",
                  std::string("The ") + what + " of a signed request is not percent-encoded as SigV4 encodes it")
        .with("Encoded", std::string(text));
  }
}

MILLRACE_INLINE std::string canonical_query(const request& r) {
  std::vector<std::pair<std::string_view, std::string_view>> parts;
  const std::string_view raw = r.raw_query();
  if (!raw.empty()) {
    for (std::string_view part : split(raw, '&')) {
      const std::size_t equals = part.find('=');
      const std::string_view name = part.substr(0, equals);
      const std::string_view value = equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
      require_canonical(name, false, "query");
      require_canonical(value, false, "query");
      if (name != "X-Amz-Signature") parts.emplace_back(name, value);
    }
  }
  std::sort(parts.begin(), parts.end());
  std::string out;
  for (const auto& [name, value] : parts) {
    if (!out.empty()) out += '&';
    out.append(name).append("=").append(value);
  }
  return out;
}

MILLRACE_INLINE std::string collapsed(std::string_view value) {
  std::string out;
  for (char c : trim(value)) {
    const bool blank = c == ' ' || c == '\t';
    if (blank && !out.empty() && out.back() == ' ') continue;
    out += blank ? ' ' : c;
  }
  return out;
}

MILLRACE_INLINE std::string canonical_request(const request& r, const std::vector<std::string_view>& signed_names,
                                              std::string_view payload) {
  require_canonical(r.raw_path(), true, "path");
  std::string out = r.method;
  out.append("\n").append(r.raw_path()).append("\n").append(canonical_query(r)).append("\n");
  std::string names;
  for (std::string_view name : signed_names) {
    out.append(name) += ':';
    bool first = true;
    for (const auto& [field, value] : r.fields) {
      if (field != name) continue;
      if (!first) out += ',';
      out += collapsed(value);
      first = false;
    }
    if (first) {
      throw refusal(403, "SignatureDoesNotMatch", "A header that is named as signed was not sent")
          .with("HeaderNotSent", std::string(name));
    }
    out += '\n';
    if (!names.empty()) names += ';';
    names += name;
  }
  return out.append("\n").append(names).append("\n").append(payload);
}

}  // namespace millrace::s3_server::detail

namespace millrace::inline MILLRACE_ABI::s3_server {

MILLRACE_INLINE caller signature_check::verify(const request& r, std::int64_t now) const {
  const std::string* header = r.field("authorization");
  const bool in_query = r.has("X-Amz-Signature") || r.has("X-Amz-Algorithm");
  if (header != nullptr && in_query) {
    throw refusal(400, "InvalidArgument", "Only one auth mechanism allowed");
  }
  if (header != nullptr) return verify_header(r, *header, now);
  if (in_query) return verify_query(r, now);
  return caller();
}

MILLRACE_INLINE caller signature_check::verify_header(const request& r, std::string_view header,
                                                      std::int64_t now) const {
  if (r.count("authorization") != 1) throw malformed("There is more than one Authorization header.");
  constexpr std::string_view algorithm = "AWS4-HMAC-SHA256 ";
  if (header.substr(0, algorithm.size()) != algorithm) {
    throw refusal(400, "InvalidRequest", "The authorization mechanism you have provided is not supported.");
  }
  std::map<std::string_view, std::string_view> parts;
  for (std::string_view part : detail::split(header.substr(algorithm.size()), ',')) {
    part = detail::trim(part);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || !parts.emplace(part.substr(0, equals), part.substr(equals + 1)).second) {
      throw malformed("The authorization header is malformed.");
    }
  }
  if (parts.size() != 3 || !parts.count("Credential") || !parts.count("SignedHeaders") || !parts.count("Signature")) {
    throw malformed("The authorization header requires Credential, SignedHeaders and Signature.");
  }
  const scope s = parse_scope(parts["Credential"]);
  const std::string* date = r.field("x-amz-date");
  const auto when = date == nullptr ? std::nullopt : detail::parse_basic_date(*date);
  if (!when || r.count("x-amz-date") != 1) {
    throw refusal(403, "AccessDenied", "AWS authentication requires a valid Date or x-amz-date header");
  }
  require_scope(s, *date);
  const access_key& key = known(s.key);
  if (now - *when > options_.allowed_skew || *when - now > options_.allowed_skew) {
    throw refusal(403, "RequestTimeTooSkewed",
                  "The difference between the request time and the current time is too large.")
        .with("RequestTime", *date)
        .with("ServerTime", detail::iso_date(now))
        .with("MaxAllowedSkewMilliseconds", std::to_string(options_.allowed_skew * 1000));
  }
  const std::string* payload = r.field("x-amz-content-sha256");
  if (payload == nullptr || r.count("x-amz-content-sha256") != 1) {
    throw refusal(400, "MissingSecurityHeader", "Your request is missing a required header")
        .with("MissingHeaderName", "x-amz-content-sha256");
  }
  require_payload_form(*payload);
  compare(r, s, *date, parts["SignedHeaders"], *payload, parts["Signature"], key);
  require_token(key, r.field("x-amz-security-token"));
  return admitted(s, *payload);
}

MILLRACE_INLINE caller signature_check::verify_query(const request& r, std::int64_t now) const {
  const auto need = [&](const char* name) -> const std::string& {
    const std::string* value = nullptr;
    for (const request::pair& p : r.query) {
      if (p.first != name) continue;
      if (value != nullptr) throw bad_query(std::string(name) + " is given twice");
      value = &p.second;
    }
    if (value == nullptr) {
      throw bad_query(
          "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
          "X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.");
    }
    return *value;
  };
  if (need("X-Amz-Algorithm") != "AWS4-HMAC-SHA256") {
    throw bad_query("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
  }
  const scope s = parse_scope(need("X-Amz-Credential"));
  const std::string& date = need("X-Amz-Date");
  const auto when = detail::parse_basic_date(date);
  if (!when) throw bad_query("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"");
  const auto expires = detail::parse_number(need("X-Amz-Expires"));
  if (!expires || *expires < 1 || *expires > 604800) {
    throw bad_query("X-Amz-Expires must be between 1 and 604800 seconds");
  }
  require_scope(s, date);
  const access_key& key = known(s.key);
  if (*when - now > options_.allowed_skew) {
    throw refusal(403, "AccessDenied", "Request is not yet valid").with("ServerTime", detail::iso_date(now));
  }
  if (now > *when + static_cast<std::int64_t>(*expires)) {
    throw refusal(403, "AccessDenied", "Request has expired")
        .with("X-Amz-Expires", std::to_string(*expires))
        .with("Expires", detail::iso_date(*when + static_cast<std::int64_t>(*expires)))
        .with("ServerTime", detail::iso_date(now));
  }
  const std::string* sent = r.field("x-amz-content-sha256");
  const std::string payload = sent != nullptr ? *sent : "UNSIGNED-PAYLOAD";
  require_payload_form(payload);
  compare(r, s, date, need("X-Amz-SignedHeaders"), payload, need("X-Amz-Signature"), key);
  require_token(key, r.parameter_value("X-Amz-Security-Token"));
  return admitted(s, payload);
}

MILLRACE_INLINE caller signature_check::admitted(const scope& s, std::string payload) {
  caller c;
  c.anonymous = false;
  c.access_key_id = std::string(s.key);
  c.payload = std::move(payload);
  return c;
}

MILLRACE_INLINE signature_check::scope signature_check::parse_scope(std::string_view credential) {
  std::string_view rest = credential;
  std::string_view tail[4];
  for (int i = 3; i >= 0; --i) {
    const std::size_t slash = rest.rfind('/');
    if (slash == std::string_view::npos) throw malformed("The Credential is mal-formed; expecting 5 parts.");
    tail[i] = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
  }
  scope s;
  s.key = rest;
  s.date = tail[0];
  s.region = tail[1];
  if (rest.empty() || tail[2] != "s3" || tail[3] != "aws4_request") {
    throw malformed("The Credential is mal-formed; expecting \"<key>/YYYYMMDD/REGION/s3/aws4_request\".");
  }
  s.text = std::string(credential.substr(rest.size() + 1));
  return s;
}

MILLRACE_INLINE void signature_check::require_scope(const scope& s, std::string_view date) const {
  if (s.region != options_.region) {
    throw malformed("The authorization header is malformed; the region '" + std::string(s.region) +
                    "' is wrong; expecting '" + options_.region + "'")
        .with("Region", options_.region)
        .header("x-amz-bucket-region", options_.region);
  }
  if (s.date != date.substr(0, 8)) throw malformed("Invalid credential date. This date is not the same as X-Amz-Date.");
}

MILLRACE_INLINE const access_key& signature_check::known(std::string_view id) const {
  const auto found = options_.keys.find(std::string(id));
  if (found == options_.keys.end()) {
    throw refusal(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
        .with("AWSAccessKeyId", std::string(id));
  }
  return found->second;
}

MILLRACE_INLINE void signature_check::require_payload_form(std::string_view payload) {
  bool hash = payload.size() == 64;
  for (char c : payload) hash = hash && ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'));
  if (hash || payload == "UNSIGNED-PAYLOAD" || payload == "STREAMING-UNSIGNED-PAYLOAD-TRAILER") return;
  if (payload.substr(0, 10) == "STREAMING-") {
    throw refusal(501, "NotImplemented", "Signed chunks are not supported by this server");
  }
  throw refusal(400, "InvalidArgument",
                "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER or a SHA-256 in "
                "lower-case hexadecimal");
}

MILLRACE_INLINE void signature_check::compare(const request& r, const scope& s, std::string_view date,
                                              std::string_view signed_headers, std::string_view payload,
                                              std::string_view signature, const access_key& key) const {
  const std::vector<std::string_view> names = detail::split(signed_headers, ';');
  require_signed_headers(r, names);
  const std::string canonical = detail::canonical_request(r, names, payload);
  std::string to_sign = "AWS4-HMAC-SHA256\n";
  to_sign.append(date).append("\n").append(s.text).append("\n");
  to_sign += detail::to_hex(detail::digest_of("SHA256", canonical));
  std::string derived = detail::hmac_sha256("AWS4" + key.secret, s.date);
  for (std::string_view step : {s.region, std::string_view("s3"), std::string_view("aws4_request")}) {
    derived = detail::hmac_sha256(derived, step);
  }
  if (detail::equal_in_constant_time(detail::to_hex(detail::hmac_sha256(derived, to_sign)), signature)) return;
  throw refusal(403, "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided. Check your key and "
                "signing method.")
      .with("AWSAccessKeyId", std::string(s.key))
      .with("StringToSign", to_sign)
      .with("CanonicalRequest", without_token(r, canonical));
}

MILLRACE_INLINE void signature_check::require_signed_headers(const request& r,
                                                             const std::vector<std::string_view>& names) {
  bool host = false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    host = host || names[i] == "host";
    if (names[i] != detail::lower_case(names[i]) || (i > 0 && names[i] <= names[i - 1])) {
      throw refusal(403, "SignatureDoesNotMatch", "The signed headers are not lower-case, sorted and unique");
    }
  }
  std::string missing = host ? "" : "host";
  for (const auto& [field, value] : r.fields) {
    if (field.compare(0, 6, "x-amz-") != 0) continue;
    bool is_signed = false;
    for (std::string_view name : names) is_signed = is_signed || name == field;
    if (!is_signed) missing += (missing.empty() ? "" : ", ") + field;
  }
  if (!missing.empty()) {
    throw refusal(403, "AccessDenied", "There were headers present in the request which were not signed")
        .with("HeadersNotSigned", missing);
  }
}

MILLRACE_INLINE void signature_check::require_token(const access_key& key, const std::string* token) {
  if (key.session_token.empty() ? token != nullptr
                                : token == nullptr || !detail::equal_in_constant_time(*token, key.session_token)) {
    throw refusal(400, "InvalidToken", "The provided token is malformed or otherwise invalid.");
  }
  if (key.expired) throw refusal(400, "ExpiredToken", "The provided token has expired.");
}

MILLRACE_INLINE std::string signature_check::without_token(const request& r, std::string canonical) {
  const auto hide = [&canonical](const std::string& secret) {
    if (secret.empty()) return;
    for (std::size_t at = 0; (at = canonical.find(secret, at)) != std::string::npos; at += 7) {
      canonical.replace(at, secret.size(), "(token)");
    }
  };
  if (const std::string* token = r.field("x-amz-security-token")) hide(detail::collapsed(*token));
  if (const std::string* token = r.parameter_value("X-Amz-Security-Token")) {
    hide(detail::percent_encode(*token, false));
  }
  return canonical;
}

}  // namespace millrace::s3_server
