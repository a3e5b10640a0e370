// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/s3/sign/amz_date.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/s3/sign/detail/canonical_headers.hpp>
#include <millrace/s3/sign/detail/canonical_path.hpp>
#include <millrace/s3/sign/detail/canonical_query.hpp>
#include <millrace/s3/sign/detail/hashing.hpp>
#include <millrace/s3/sign/detail/signing_key_cache.hpp>
#include <millrace/s3/sign/signed_headers.hpp>
#include <millrace/s3/sign/signing_request.hpp>
#include <millrace/text/hex.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3 {

/// How a service wants its requests signed. The defaults are those of S3; STS and others encode the path once more,
/// collapse dot segments and send no payload hash.
struct signing_options {
  bool encode_path = false;         ///< encode the path that is sent (again) for the signature
  bool normalize_path = false;      ///< remove empty, `.` and `..` segments from the signed path
  bool send_content_sha256 = true;  ///< send and sign x-amz-content-sha256
  bool sign_session_token = true;   ///< false: the session token is sent, but outside the signature
};

/// Signs requests with AWS Signature Version 4 (AWS4-HMAC-SHA256).
///
/// One per client and loop, for one thread at a time: it owns its OpenSSL objects, its scratch memory and the signing
/// keys of the day. Sign every attempt anew, with a fresh time and the present credentials: a signature is good for
/// one request within fifteen minutes. Keys and everything they went through are overwritten on destruction.
/// Throws configuration_error for a request that must not be signed; no message contains a secret.
template <class T = void>
class basic_signer {
 public:
  explicit basic_signer(signing_options options = signing_options()) : options_(options) {
    // Grown once: a reallocation would leave copies of session tokens behind.
    canonical_.reserve(16384);
    authorization_.reserve(1024);
  }
  basic_signer(basic_signer&&) noexcept = default;
  basic_signer& operator=(basic_signer&&) noexcept = default;
  ~basic_signer() {
    canonical_.resize(canonical_.capacity());  // an earlier, longer request may lie behind the last one
    OPENSSL_cleanse(canonical_.data(), canonical_.size());
    OPENSSL_cleanse(authorization_.data(), authorization_.size());
  }

  /// The headers to add to the request: x-amz-date, x-amz-content-sha256, x-amz-security-token (with a session token)
  /// and authorization; none at all for anonymous credentials. Valid until the next call and as long as `who` and
  /// `request.payload` live. `now` is in unix seconds, corrected for a known skew of the clock.
  signed_headers sign(const signing_request& request, const credentials& who, std::int64_t now) {
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

  /// The query string of a URL that carries its own signature and is good for `expires_in` seconds (1 to 604800):
  /// the request's own parameters, then X-Amz-*. Send no header but host and those in `request.headers`. For S3 the
  /// payload must be unsigned_payload. The result is a secret while it lasts: never log it.
  std::string presign(const signing_request& request, const credentials& who, std::int64_t now,
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

  /// Lower-case hexadecimal SHA-256 of a body, for signing_request::payload.
  std::string payload_sha256(std::string_view body) {
    detail::digest hash;
    sha256_(body, hash);
    std::string text;
    text::append_hex(text, hash);
    return text;
  }

  /// What the last signature was computed from, to be held against the server's answer to a SignatureDoesNotMatch.
  /// The canonical request contains the session token. Valid until the next call.
  const std::string& canonical_request() const noexcept { return canonical_; }
  const std::string& string_to_sign() const noexcept { return string_to_sign_; }

  /// Signing keys derived so far; it stays put while keys are reused.
  std::size_t keys_derived() const noexcept { return keys_.derivations(); }

 private:
  void check(const signing_request& request) {
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

  /// False for what cannot stand in a request line, whatever the service.
  static bool is_sendable(std::string_view text) noexcept {
    bool good = true;
    for (char c : text) {
      const auto u = static_cast<unsigned char>(c);
      good &= (u >= 0x20) & (u != 0x7f) & (c != '?') & (c != '#');
    }
    return good;
  }

  static void check_name(std::string_view text, const char* what) {
    bool good = !text.empty();
    for (char c : text) good &= text::detail::is_unreserved(c);  // each, without a jump
    if (!good) throw configuration_error(std::string("not a ") + what + ": \"" + std::string(text) + "\"");
  }

  /// A query that carries a signature already must be sent untouched or stripped of it.
  static void check_query_names(std::string_view query) {
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

  void append_scope(std::string& out, const signing_request& request) const {
    out += date_.day();
    out += '/';
    out += request.region;
    out += '/';
    out += request.service;
    out += "/aws4_request";
  }

  /// Leaves the signature of the request with `query` and the collected headers in signature_.
  void compute(const signing_request& request, const credentials& who, std::string_view query) {
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

  /// A part of a request that is the same in the next one, nearly always, and has been found good.
  class known_good {
   public:
    bool is(std::string_view text) const noexcept { return !text.empty() && text == text_; }
    void keep(std::string_view text) { text_ = text; }

   private:
    std::string text_;
  };

  signing_options options_;
  known_good host_, region_, service_;
  detail::sha256 sha256_;
  detail::hmac_sha256 hmac_;
  detail::signing_key_cache keys_;
  detail::canonical_headers<T> headers_;
  detail::canonical_query<T> query_;
  amz_date date_{0};
  detail::digest signature_{};
  std::string canonical_;
  std::size_t names_begin_ = 0;  // the names of the signed headers in canonical_
  std::size_t names_size_ = 0;
  std::string string_to_sign_;
  std::string authorization_;
};
using signer = basic_signer<>;

}  // namespace millrace::s3
