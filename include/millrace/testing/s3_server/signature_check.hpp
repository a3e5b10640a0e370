// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/testing/s3_server/message.hpp>
#include <millrace/testing/s3_server/options.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

/// The query as SigV4 sorts it, without the signature.
std::string canonical_query(const request& r);

/// A value with runs of blanks made one.
std::string collapsed(std::string_view value);

/// The canonical request of SigV4 for S3 (one encoding, no normalisation) over the named header fields.
std::string canonical_request(const request& r, const std::vector<std::string_view>& signed_names,
                              std::string_view payload);

}  // namespace millrace::s3_server::detail

namespace millrace::inline MILLRACE_ABI::s3_server {

/// The sender of a request, and the requirements on its body.
class caller {
 public:
  bool anonymous = true;
  std::string access_key_id;
  std::string payload = "UNSIGNED-PAYLOAD";  ///< the value of x-amz-content-sha256 that was signed
};

/// Verifies SigV4 signatures, in the Authorization header or in the query: an implementation independent of the
/// library's signer, and stricter than S3. Besides the requests that S3 refuses it refuses a path or query that is not
/// percent-encoded exactly as it is signed, signed headers that are not sorted, and an unsigned x-amz-* header in any
/// request. Anonymous requests pass; their rights are decided elsewhere.
class signature_check {
 public:
  /// `o` must outlive the check.
  explicit signature_check(const options& o) : options_(o) {}

  /// Judges everything but the body, which may not have arrived; throws refusal. `now` is Unix time.
  caller verify(const request& r, std::int64_t now) const;

 private:
  class scope {
   public:
    std::string_view key;
    std::string_view date;
    std::string_view region;
    std::string text;  // date/region/s3/aws4_request
  };

  caller verify_header(const request& r, std::string_view header, std::int64_t now) const;

  caller verify_query(const request& r, std::int64_t now) const;

  static refusal malformed(const std::string& message) { return refusal(400, "AuthorizationHeaderMalformed", message); }
  static refusal bad_query(const std::string& message) {
    return refusal(400, "AuthorizationQueryParametersError", message);
  }
  static caller admitted(const scope& s, std::string payload);

  /// key/yyyymmdd/region/s3/aws4_request; the key may hold slashes.
  static scope parse_scope(std::string_view credential);
  void require_scope(const scope& s, std::string_view date) const;
  const access_key& known(std::string_view id) const;
  static void require_payload_form(std::string_view payload);

  void compare(const request& r, const scope& s, std::string_view date, std::string_view signed_headers,
               std::string_view payload, std::string_view signature, const access_key& key) const;

  static void require_signed_headers(const request& r, const std::vector<std::string_view>& names);

  static void require_token(const access_key& key, const std::string* token);

  /// Session tokens are secrets: they do not go into error documents, where logs would pick them up.
  static std::string without_token(const request& r, std::string canonical);

  const options& options_;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/signature_check.ipp>
#endif
