// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/s3/sign/credentials.hpp>
#include <millrace/s3/sign/detail/hashing.hpp>

namespace millrace::s3::detail {

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

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/sign/detail/impl/signing_key_cache.ipp>
#endif
