// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <millrace/s3/sign/amz_date.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/s3/sign/detail/canonical_headers.hpp>
#include <millrace/s3/sign/detail/canonical_query.hpp>
#include <millrace/s3/sign/detail/hashing.hpp>
#include <millrace/s3/sign/detail/signing_key_cache.hpp>
#include <millrace/s3/sign/signed_headers.hpp>
#include <millrace/s3/sign/signing_request.hpp>
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
class signer {
 public:
  explicit signer(signing_options options = signing_options());
  signer(signer&&) noexcept = default;
  signer& operator=(signer&&) noexcept = default;
  ~signer();

  /// The headers to add to the request: x-amz-date, x-amz-content-sha256, x-amz-security-token (with a session token)
  /// and authorization; none at all for anonymous credentials. Valid until the next call and as long as `who` and
  /// `request.payload` live. `now` is in unix seconds, corrected for a known skew of the clock.
  signed_headers sign(const signing_request& request, const credentials& who, std::int64_t now);

  /// The query string of a URL that carries its own signature and is good for `expires_in` seconds (1 to 604800):
  /// the request's own parameters, then X-Amz-*. Send no header but host and those in `request.headers`. For S3 the
  /// payload must be unsigned_payload. The result is a secret while it lasts: never log it.
  std::string presign(const signing_request& request, const credentials& who, std::int64_t now,
                      std::int64_t expires_in);

  /// Lower-case hexadecimal SHA-256 of a body, for signing_request::payload.
  std::string payload_sha256(std::string_view body);

  /// What the last signature was computed from, to be held against the server's answer to a SignatureDoesNotMatch.
  /// The canonical request contains the session token. Valid until the next call.
  const std::string& canonical_request() const noexcept { return canonical_; }
  const std::string& string_to_sign() const noexcept { return string_to_sign_; }

  /// Signing keys derived so far; it stays put while keys are reused.
  std::size_t keys_derived() const noexcept { return keys_.derivations(); }

 private:
  void check(const signing_request& request);

  /// False for what cannot stand in a request line, whatever the service.
  static bool is_sendable(std::string_view text) noexcept;

  static void check_name(std::string_view text, const char* what);

  /// A query that carries a signature already must be sent untouched or stripped of it.
  static void check_query_names(std::string_view query);

  void append_scope(std::string& out, const signing_request& request) const;

  /// Leaves the signature of the request with `query` and the collected headers in signature_.
  void compute(const signing_request& request, const credentials& who, std::string_view query);

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
  detail::canonical_headers headers_;
  detail::canonical_query query_;
  amz_date date_{0};
  detail::digest signature_{};
  std::string canonical_;
  std::size_t names_begin_ = 0;  // the names of the signed headers in canonical_
  std::size_t names_size_ = 0;
  std::string string_to_sign_;
  std::string authorization_;
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/sign/impl/signer.ipp>
#endif
