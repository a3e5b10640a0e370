// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/error.hpp>
#include <millrace/base/owned.hpp>

namespace millrace::s3::detail {

using digest = std::array<unsigned char, 32>;

struct openssl_free {
  void operator()(EVP_MD* p) const noexcept { EVP_MD_free(p); }
  void operator()(EVP_MD_CTX* p) const noexcept { EVP_MD_CTX_free(p); }
  void operator()(EVP_MAC* p) const noexcept { EVP_MAC_free(p); }
  void operator()(EVP_MAC_CTX* p) const noexcept { EVP_MAC_CTX_free(p); }
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

  void operator()(std::string_view text, digest& out) {
    if (EVP_DigestInit_ex2(context_.get(), algorithm_.get(), nullptr) != 1 ||
        EVP_DigestUpdate(context_.get(), text.data(), text.size()) != 1 ||
        EVP_DigestFinal_ex(context_.get(), out.data(), nullptr) != 1) {
      hashing_failed();
    }
  }

 private:
  owned<EVP_MD, openssl_free> algorithm_;
  owned<EVP_MD_CTX, openssl_free> context_;
};

/// HMAC with SHA-256 (RFC 2104), fetched once per object too. The context holds the last key until the next call and
/// is overwritten by OpenSSL when it is freed.
class hmac_sha256 {
 public:
  hmac_sha256() : algorithm_(EVP_MAC_fetch(nullptr, "HMAC", nullptr)) {
    if (algorithm_ == nullptr) hashing_failed();
    context_.reset(EVP_MAC_CTX_new(algorithm_.get()));
    char name[] = "SHA256";
    const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
                                     OSSL_PARAM_construct_end()};
    if (context_ == nullptr || EVP_MAC_CTX_set_params(context_.get(), parameters) != 1) hashing_failed();
  }

  void operator()(const unsigned char* key, std::size_t key_size, std::string_view text, digest& out) {
    std::size_t written = 0;
    if (EVP_MAC_init(context_.get(), key, key_size, nullptr) != 1 ||
        EVP_MAC_update(context_.get(), reinterpret_cast<const unsigned char*>(text.data()), text.size()) != 1 ||
        EVP_MAC_final(context_.get(), out.data(), &written, out.size()) != 1 || written != out.size()) {
      hashing_failed();
    }
  }

 private:
  owned<EVP_MAC, openssl_free> algorithm_;
  owned<EVP_MAC_CTX, openssl_free> context_;
};

/// Appends lower-case hexadecimal, as SigV4 wants it.
template <class = void>
void append_hex(std::string& out, const digest& bytes) {
  static constexpr char hex[] = "0123456789abcdef";
  char text[2 * std::tuple_size<digest>::value];
  std::size_t at = 0;
  for (unsigned char byte : bytes) {
    text[at++] = hex[byte >> 4];
    text[at++] = hex[byte & 15];
  }
  out.append(text, sizeof text);
}

}  // namespace millrace::s3::detail
