// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>

namespace millrace::s3::detail {

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

/// HMAC with SHA-256 (RFC 2104). What a key makes of the two hashes is kept for the next call, which is nearly always
/// for the same key, the signing key of the day: half of a short text's HMAC. (EVP_MAC_init() without a key is meant to
/// do that, and does not in the first releases of OpenSSL 3.) Keys and their traces are overwritten in the end.
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

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/sign/detail/impl/hashing.ipp>
#endif
