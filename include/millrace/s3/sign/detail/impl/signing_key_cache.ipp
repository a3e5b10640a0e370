// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/sign/detail/signing_key_cache.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE const digest& signing_key_cache::find(hmac_sha256& hmac, const credentials& who, std::string_view day,
                                                      std::string_view region, std::string_view service) {
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

MILLRACE_INLINE void signing_key_cache::clear() noexcept {
  for (entry& e : entries_) {
    OPENSSL_cleanse(e.key.data(), e.key.size());
    e.region.clear();
  }
  next_ = 0;
}

MILLRACE_INLINE void signing_key_cache::derive(hmac_sha256& hmac, const credentials& who, std::string_view day,
                                               std::string_view region, std::string_view service, digest& key) {
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

}  // namespace millrace::s3::detail
