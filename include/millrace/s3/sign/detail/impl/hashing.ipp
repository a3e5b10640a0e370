// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <cstring>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/sign/detail/hashing.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE void sha256::operator()(std::string_view text, digest& out) {
  if (EVP_DigestInit_ex2(context_.get(), algorithm_.get(), nullptr) != 1 ||
      EVP_DigestUpdate(context_.get(), text.data(), text.size()) != 1 ||
      EVP_DigestFinal_ex(context_.get(), out.data(), nullptr) != 1) {
    hashing_failed();
  }
}

MILLRACE_INLINE hmac_sha256::hmac_sha256()
    : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr)),
      inner_(EVP_MD_CTX_new()),
      outer_(EVP_MD_CTX_new()),
      work_(EVP_MD_CTX_new()) {
  if (algorithm_ == nullptr || inner_ == nullptr || outer_ == nullptr || work_ == nullptr) hashing_failed();
}

MILLRACE_INLINE void hmac_sha256::operator()(const unsigned char* key, std::size_t key_size, std::string_view text,
                                             digest& out) {
  if (!keyed_ || key_size != key_.size() || std::memcmp(key, key_.data(), key_size) != 0) set_key(key, key_size);
  if (EVP_MD_CTX_copy_ex(work_.get(), inner_.get()) != 1 ||
      EVP_DigestUpdate(work_.get(), text.data(), text.size()) != 1 ||
      EVP_DigestFinal_ex(work_.get(), out.data(), nullptr) != 1 || EVP_MD_CTX_copy_ex(work_.get(), outer_.get()) != 1 ||
      EVP_DigestUpdate(work_.get(), out.data(), out.size()) != 1 ||
      EVP_DigestFinal_ex(work_.get(), out.data(), nullptr) != 1) {
    hashing_failed();
  }
}

MILLRACE_INLINE void hmac_sha256::set_key(const unsigned char* key, std::size_t size) {
  unsigned char block[64] = {};  // of SHA-256
  keyed_ = false;
  bool good = true;
  if (size <= sizeof block) {
    std::memcpy(block, key, size);
  } else {
    good = begin(work_.get(), key, size) && EVP_DigestFinal_ex(work_.get(), block, nullptr) == 1;
  }
  for (unsigned char& b : block) b ^= 0x36;
  good = good && begin(inner_.get(), block, sizeof block);
  for (unsigned char& b : block) b ^= 0x36 ^ 0x5c;
  good = good && begin(outer_.get(), block, sizeof block);
  OPENSSL_cleanse(block, sizeof block);
  if (!good) hashing_failed();
  if (size == key_.size()) {
    std::memcpy(key_.data(), key, size);
    keyed_ = true;
  }
}

}  // namespace millrace::s3::detail
