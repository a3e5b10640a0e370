// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/s3/sign/signing_request.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// A moment the way SigV4 writes it: `20130524T000000Z`, and its day `20130524`.
class amz_date {
 public:
  /// `unix_seconds` since 1970-01-01 00:00 UTC. Throws configuration_error outside the years 1970 to 9999.
  explicit amz_date(std::int64_t unix_seconds);

  /// Valid as long as this object.
  std::string_view timestamp() const noexcept { return {text_, sizeof text_}; }
  std::string_view day() const noexcept { return timestamp().substr(0, 8); }

 private:
  static char* digits(char* out, int two) noexcept;

  char text_[16];
};

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// True for paths as text::append_encoded_path() writes them: S3 decodes the path of a request, encodes it so and signs
/// that. Any other spelling of the same path would be refused as a wrong signature.
bool is_encoded_path(std::string_view path) noexcept;

/// Removes empty, `.` and `..` segments the way the services other than S3 sign paths; a slash at the end stays.
/// Never used for S3, where `a//b` and `a/../b` are keys of their own.
std::string normalized_path(std::string_view path);

/// Writes the canonical query string of SigV4: names and values encoded, sorted by encoded name, then by encoded value.
///
/// Keeps its scratch memory between calls. Text that is not encoded canonically (`/` left as it is, lower-case
/// hexadecimal) is signed in its canonical form, as the server will compute it from the request.
class canonical_query {
 public:
  /// Appends to `out`. Throws configuration_error for a broken escape and for `+`, which some servers read as a space
  /// and others as itself: the signature could not hold for both.
  void append(std::string& out, std::string_view query);

 private:
  /// Keeps the parameters sorted, by name and then value. A request has a handful of them.
  void insert(const header_field& parameter);

  std::string_view canonical(std::string_view text);

  std::vector<header_field> parameters_;
  std::string rewritten_;
};

/// The headers of one SigV4 signature: checked, lower-cased, sorted, repeated ones joined. Keeps its scratch memory.
class canonical_headers {
 public:
  /// Forgets the last request and takes the caller's headers. Throws configuration_error for headers that must not be
  /// there.
  void assign(const owned_fields& headers);

  /// Adds one of the signer's own: `name` in lower case, `value` without a blank or a control character.
  void add(std::string_view name, std::string_view value);

  /// Appends `name:value\n` per header.
  void append_block(std::string& out) const;

  /// Appends the names, `;` between them.
  void append_names(std::string& out) const;

 private:
  struct entry {
    std::size_t name_begin;  // in names_, which may move while headers are added
    std::size_t name_size;
    std::string_view value;
    bool plain;  // signed as it is
  };

  std::string_view name_of(const entry& e) const noexcept {
    return std::string_view(names_).substr(e.name_begin, e.name_size);
  }

  /// Keeps the entries sorted by name, equal names in order of arrival.
  void insert(const entry& e);

  static bool is_refused(std::string_view name) noexcept;

  /// Headers that proxies and HTTP libraries add, change or drop.
  static bool is_left_unsigned(std::string_view name) noexcept;

  static void check_name(std::string_view name);

  /// True when there is nothing to collapse. The value stays out of the message: it may be a token.
  static bool check_value(std::string_view name, std::string_view value);

  /// Trims, and makes every inner run of blanks and tabs one blank.
  static void append_collapsed(std::string& out, std::string_view value);

  std::string names_;
  std::vector<entry> entries_;
};

using digest = std::array<unsigned char, 32>;

struct openssl_free {
  void operator()(EVP_MD* p) const noexcept { EVP_MD_free(p); }
  void operator()(EVP_MD_CTX* p) const noexcept { EVP_MD_CTX_free(p); }
};

[[noreturn]] inline void hashing_failed() {
  throw configuration_error("OpenSSL cannot compute SHA-256 (does its configuration disable the default provider?)");
}

/// SHA-256. The algorithm is fetched once per object: a fetch by name per call costs more than the hash itself.
class sha256 {
 public:
  sha256() : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr)), context_(EVP_MD_CTX_new()) {
    if (algorithm_ == nullptr || context_ == nullptr) hashing_failed();
  }

  void operator()(std::string_view text, digest& out);

 private:
  std::unique_ptr<EVP_MD, openssl_free> algorithm_;
  std::unique_ptr<EVP_MD_CTX, openssl_free> context_;
};

/// HMAC with SHA-256 (RFC 2104). The state of both hashes after the key is kept for the next call, which is nearly
/// always for the same key, the signing key of the day: half of a short text's HMAC. (EVP_MAC_init() without a key is
/// meant to do that, and does not in the first releases of OpenSSL 3.) Keys and values derived from them are
/// overwritten on destruction.
class hmac_sha256 {
 public:
  hmac_sha256();
  hmac_sha256(hmac_sha256&&) noexcept = default;
  hmac_sha256& operator=(hmac_sha256&&) noexcept = default;
  ~hmac_sha256() { OPENSSL_cleanse(key_.data(), key_.size()); }

  /// `out` may be the key.
  void operator()(const unsigned char* key, std::size_t key_size, std::string_view text, digest& out);

 private:
  void set_key(const unsigned char* key, std::size_t size);
  bool begin(EVP_MD_CTX* context, const unsigned char* text, std::size_t size) noexcept {
    return EVP_DigestInit_ex2(context, algorithm_.get(), nullptr) == 1 && EVP_DigestUpdate(context, text, size) == 1;
  }

  std::unique_ptr<EVP_MD, openssl_free> algorithm_;
  std::unique_ptr<EVP_MD_CTX, openssl_free> inner_;  // after the key's block
  std::unique_ptr<EVP_MD_CTX, openssl_free> outer_;
  std::unique_ptr<EVP_MD_CTX, openssl_free> work_;
  digest key_{};  // whose, if keyed_
  bool keyed_ = false;
};

/// The SigV4 signing keys of one day and one secret, per region and service.
///
/// Deriving one takes four HMACs, three times the cost of a signature; a client signs for one or two regions. Another
/// day or another secret drops (and overwrites) everything.
class signing_key_cache {
 public:
  signing_key_cache() = default;
  signing_key_cache(signing_key_cache&&) noexcept = default;
  signing_key_cache& operator=(signing_key_cache&&) noexcept = default;

  /// The key of (secret, day, region, service); valid until the next call.
  const digest& find(hmac_sha256& hmac, const credentials& who, std::string_view day, std::string_view region,
                     std::string_view service);

  /// Keys derived since construction: how tests see that the cache works.
  std::size_t derivations() const noexcept { return derivations_; }

 private:
  static constexpr std::size_t capacity = 8;

  struct entry {
    entry() = default;
    entry(entry&&) noexcept = default;
    entry& operator=(entry&&) noexcept = default;
    ~entry() { OPENSSL_cleanse(key.data(), key.size()); }
    std::string region;
    std::string service;
    digest key{};
  };

  void clear() noexcept;

  void derive(hmac_sha256& hmac, const credentials& who, std::string_view day, std::string_view region,
              std::string_view service, digest& key);

  entry entries_[capacity];
  std::size_t next_ = 0;
  std::size_t derivations_ = 0;
  credentials holder_;
  std::string day_;
};

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

/// How a service wants its requests signed. The defaults are those of S3; STS and others encode the path once more,
/// collapse dot segments and send no payload hash.
struct signing_options {
  bool encode_path = false;         ///< encode the path that is sent (again) for the signature
  bool normalize_path = false;      ///< remove empty, `.` and `..` segments from the signed path
  bool send_content_sha256 = true;  ///< send and sign x-amz-content-sha256
};

/// Signs requests with AWS Signature Version 4 (AWS4-HMAC-SHA256).
///
/// One per client and loop, for one thread at a time: it owns its OpenSSL objects, its scratch memory and the signing
/// keys of the day. Sign every attempt anew, with a fresh time and the present credentials: a signature is good for
/// one request within fifteen minutes. Keys and all intermediate values are overwritten on destruction.
/// Throws configuration_error for a request that must not be signed; no message contains a secret.
class signer {
 public:
  explicit signer(signing_options options = signing_options());
  signer(signer&&) noexcept = default;
  signer& operator=(signer&&) noexcept = default;
  ~signer();

  /// The headers to add to the request: x-amz-date, x-amz-content-sha256, x-amz-security-token (with a session token;
  /// x-amz-s3session-token for signing_request::bucket_session) and authorization; none at all for anonymous
  /// credentials. Valid until the next call and as long as `who` lives. `now` is in unix seconds, corrected for a known
  /// skew of the clock.
  signed_headers sign(const signing_request& request, const credentials& who, std::int64_t now);

  /// The query string of a URL that carries its own signature and is good for `expires_in` seconds (1 to 604800):
  /// the request's own parameters, then X-Amz-*. Send no header but host and those in `request.headers`. For S3 the
  /// payload must be unsigned_payload. The result is a secret while it lasts: never log it.
  std::string presign(const signing_request& request, const credentials& who, std::int64_t now,
                      std::int64_t expires_in);

  /// Lower-case hexadecimal SHA-256 of a body, for signing_request::payload.
  std::string payload_sha256(std::string_view body);

  /// The input of the last signature, to be held against the server's answer to a SignatureDoesNotMatch. The canonical
  /// request contains the session token. Valid until the next call.
  const std::string& canonical_request() const noexcept { return canonical_; }
  const std::string& string_to_sign() const noexcept { return string_to_sign_; }

  /// Signing keys derived so far; it stays put while keys are reused.
  std::size_t keys_derived() const noexcept { return keys_.derivations(); }

 private:
  void check(const signing_request& request);

  /// False for text that cannot stand in a request line, whatever the service.
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
  std::string payload_;
  std::string canonical_;
  std::size_t names_begin_ = 0;  // the names of the signed headers in canonical_
  std::size_t names_size_ = 0;
  std::string string_to_sign_;
  std::string authorization_;
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/sign/signer.ipp>
#endif
