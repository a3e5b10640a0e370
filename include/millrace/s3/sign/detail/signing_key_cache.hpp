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
                     std::string_view service) {
    const bool same_secret = holder_.same_snapshot(who) || holder_.secret_access_key() == who.secret_access_key();
    if (!same_secret || day_ != day) clear();
    for (const entry& e : entries_) {
      if (!e.region.empty() && e.region == region && e.service == service) return e.key;
    }
    entry& slot = entries_[next_];
    slot.region.clear();  // empty unless the derivation below succeeds
    derive(hmac, who, day, region, service, slot.key);
    slot.service = service;
    slot.region = region;
    next_ = (next_ + 1) % capacity;
    holder_ = who;
    day_ = day;
    return slot.key;
  }

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

  void clear() noexcept {
    for (entry& e : entries_) {
      OPENSSL_cleanse(e.key.data(), e.key.size());
      e.region.clear();
    }
    next_ = 0;
  }

  void derive(hmac_sha256& hmac, const credentials& who, std::string_view day, std::string_view region,
              std::string_view service, digest& key) {
    std::string seed;
    seed.reserve(4 + who.secret_access_key().size());
    seed += "AWS4";
    seed += who.secret_access_key();
    struct wipe {
      explicit wipe(std::string& t) noexcept : text(t) {}
      ~wipe() { OPENSSL_cleanse(text.data(), text.size()); }
      std::string& text;
    };
    const wipe wipe_seed(seed);
    hmac(reinterpret_cast<const unsigned char*>(seed.data()), seed.size(), day, key);
    hmac(key.data(), key.size(), region, key);
    hmac(key.data(), key.size(), service, key);
    hmac(key.data(), key.size(), "aws4_request", key);
    ++derivations_;
  }

  entry entries_[capacity];
  std::size_t next_ = 0;
  std::size_t derivations_ = 0;
  credentials holder_;
  std::string day_;
};

}  // namespace millrace::s3::detail
