// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/sign/detail/canonical_path.hpp>
#include <millrace/s3/sign/signer.hpp>
#include <millrace/text/hex.hpp>

namespace millrace::s3 {

MILLRACE_INLINE signer::signer(signing_options options) : options_(options) {
  // Grown once: a reallocation would leave copies of session tokens behind.
  canonical_.reserve(16384);
  authorization_.reserve(1024);
}

MILLRACE_INLINE signer::~signer() {
  canonical_.resize(canonical_.capacity());  // an earlier, longer request may lie behind the last one
  OPENSSL_cleanse(canonical_.data(), canonical_.size());
  OPENSSL_cleanse(authorization_.data(), authorization_.size());
}

MILLRACE_INLINE signed_headers signer::sign(const signing_request& request, const credentials& who, std::int64_t now) {
  check(request);
  headers_.assign(request.headers);
  signed_headers result;
  if (who.is_anonymous()) return result;

  date_ = amz_date(now);
  headers_.add("host", request.host);
  headers_.add("x-amz-date", date_.timestamp());
  result.add("x-amz-date", date_.timestamp());
  if (options_.send_content_sha256) {
    headers_.add("x-amz-content-sha256", request.payload);
    result.add("x-amz-content-sha256", request.payload);
  }
  if (!who.session_token().empty()) {
    if (options_.sign_session_token) headers_.add("x-amz-security-token", who.session_token());
    result.add("x-amz-security-token", who.session_token());
  }
  compute(request, who, request.query);

  authorization_ = "AWS4-HMAC-SHA256 Credential=";
  authorization_ += who.access_key_id();
  authorization_ += '/';
  append_scope(authorization_, request);
  authorization_ += ", SignedHeaders=";
  authorization_.append(canonical_, names_begin_, names_size_);
  authorization_ += ", Signature=";
  text::append_hex(authorization_, signature_);
  result.add("authorization", authorization_);
  return result;
}

MILLRACE_INLINE std::string signer::presign(const signing_request& request, const credentials& who, std::int64_t now,
                                            std::int64_t expires_in) {
  check(request);
  headers_.assign(request.headers);
  if (who.is_anonymous()) throw configuration_error("a presigned URL needs credentials");
  if (expires_in < 1 || expires_in > 604800) {
    throw configuration_error("a presigned URL is good for 1 second to 7 days");
  }
  date_ = amz_date(now);
  headers_.add("host", request.host);

  std::string query(request.query);
  std::string text(who.access_key_id());
  text += '/';
  append_scope(text, request);
  text::append_query_parameter(query, "X-Amz-Algorithm", "AWS4-HMAC-SHA256");
  text::append_query_parameter(query, "X-Amz-Credential", text);
  text::append_query_parameter(query, "X-Amz-Date", date_.timestamp());
  text::append_query_parameter(query, "X-Amz-Expires", std::to_string(expires_in));
  text.clear();
  headers_.append_names(text);
  text::append_query_parameter(query, "X-Amz-SignedHeaders", text);
  const bool token = !who.session_token().empty();
  if (token && options_.sign_session_token) {
    text::append_query_parameter(query, "X-Amz-Security-Token", who.session_token());
  }
  compute(request, who, query);
  if (token && !options_.sign_session_token) {
    text::append_query_parameter(query, "X-Amz-Security-Token", who.session_token());
  }
  query += "&X-Amz-Signature=";
  text::append_hex(query, signature_);
  return query;
}

MILLRACE_INLINE std::string signer::payload_sha256(std::string_view body) {
  detail::digest hash;
  sha256_(body, hash);
  std::string text;
  text::append_hex(text, hash);
  return text;
}

MILLRACE_INLINE void signer::check(const signing_request& request) {
  bool good = !request.method.empty();
  for (char c : request.method) good = good && c >= 'A' && c <= 'Z';
  if (!good) throw configuration_error("the method of a request must be in upper case");
  if (!host_.is(request.host)) {
    good = !request.host.empty();
    for (char c : request.host) {
      const auto u = static_cast<unsigned char>(c);
      good &= (u > ' ') & (u < 0x7f) & (c != '/') & (c != '@') & ((c < 'A') | (c > 'Z'));
    }
    if (!good) {
      throw configuration_error("a request to be signed needs its host, in lower case, as in its Host header");
    }
    host_.keep(request.host);
  }
  if (request.path.empty() || request.path.front() != '/') {
    throw configuration_error("the path of a request must start with /");
  }
  if (!(options_.encode_path ? is_sendable(request.path) : detail::is_encoded_path(request.path))) {
    throw configuration_error("the path of a request must be encoded as text::encode_path() does");
  }
  if (!is_sendable(request.query)) throw configuration_error("the query string of a request must be encoded");
  check_query_names(request.query);
  if (!region_.is(request.region)) {
    check_name(request.region, "region");
    region_.keep(request.region);
  }
  if (!service_.is(request.service)) {
    check_name(request.service, "service");
    service_.keep(request.service);
  }
  if (request.payload != empty_payload_sha256) check_name(request.payload, "payload hash");
}

MILLRACE_INLINE bool signer::is_sendable(std::string_view text) noexcept {
  bool good = true;
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    good &= (u >= 0x20) & (u != 0x7f) & (c != '?') & (c != '#');
  }
  return good;
}

MILLRACE_INLINE void signer::check_name(std::string_view text, const char* what) {
  bool good = !text.empty();
  for (char c : text) good &= text::detail::is_unreserved(c);  // each, without a jump
  if (!good) throw configuration_error(std::string("not a ") + what + ": \"" + std::string(text) + "\"");
}

MILLRACE_INLINE void signer::check_query_names(std::string_view query) {
  static constexpr std::string_view prefix = "x-amz-";
  static constexpr std::string_view payer = "x-amz-request-payer=";  // the one that a presigned URL may need
  while (!query.empty()) {
    bool reserved = query.size() >= prefix.size() && query.substr(0, payer.size()) != payer;
    for (std::size_t i = 0; reserved && i < prefix.size(); ++i) reserved = (query[i] | 0x20) == (prefix[i] | 0x20);
    if (reserved) throw configuration_error("X-Amz-* query parameters are written by the signer, not by its caller");
    const std::size_t end = query.find('&');
    if (end == std::string_view::npos) return;
    query.remove_prefix(end + 1);
  }
}

MILLRACE_INLINE void signer::append_scope(std::string& out, const signing_request& request) const {
  out += date_.day();
  out += '/';
  out += request.region;
  out += '/';
  out += request.service;
  out += "/aws4_request";
}

MILLRACE_INLINE void signer::compute(const signing_request& request, const credentials& who, std::string_view query) {
  canonical_ = request.method;
  canonical_ += '\n';
  if (!options_.encode_path && !options_.normalize_path) {
    canonical_ += request.path;
  } else {
    const std::string path =
        options_.normalize_path ? detail::normalized_path(request.path) : std::string(request.path);
    if (options_.encode_path) {
      text::append_encoded_path(canonical_, path);
    } else {
      canonical_ += path;
    }
  }
  canonical_ += '\n';
  query_.append(canonical_, query);
  canonical_ += '\n';
  headers_.append_block(canonical_);
  canonical_ += '\n';
  names_begin_ = canonical_.size();
  headers_.append_names(canonical_);
  names_size_ = canonical_.size() - names_begin_;
  canonical_ += '\n';
  canonical_ += request.payload;

  sha256_(canonical_, signature_);
  string_to_sign_ = "AWS4-HMAC-SHA256\n";
  string_to_sign_ += date_.timestamp();
  string_to_sign_ += '\n';
  append_scope(string_to_sign_, request);
  string_to_sign_ += '\n';
  text::append_hex(string_to_sign_, signature_);

  const detail::digest& key = keys_.find(hmac_, who, date_.day(), request.region, request.service);
  hmac_(key.data(), key.size(), string_to_sign_, signature_);
}

}  // namespace millrace::s3
