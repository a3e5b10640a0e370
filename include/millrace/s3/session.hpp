// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <millrace/base/rng.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/http/options.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/retry/retry_options.hpp>
#include <millrace/s3/auth/credentials_provider.hpp>
#include <millrace/s3/config/config.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// State that the copies of a client share: configuration, credentials, the quota of retries, and facts learnt from the
/// store (regions of buckets, the offset of its clock). Thread-safe.
class session {
 public:
  session(config c, std::shared_ptr<credentials_provider> provider, http::transport_options transport);
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session();

  const config& base() const noexcept { return config_; }
  credentials_provider& provider() const noexcept { return *provider_; }
  const std::shared_ptr<credentials_provider>& shared_provider() const noexcept { return provider_; }
  /// The sessions with a directory bucket, which stay as long as this. Keeps `made` where there are none yet; null if
  /// that is null, too.
  credentials_provider* bucket_sessions(const std::string& bucket, std::shared_ptr<credentials_provider> made) const;
  const std::shared_ptr<const http::transport_options>& transport() const noexcept { return transport_; }

  /// How requests are tried again, and the tokens that they share.
  const retry_options& retries() const noexcept { return retries_; }
  retry_quota& quota() const noexcept { return quota_; }
  /// Uniform in [0, 1), different in every process: clients that failed together do not come back together.
  double jitter() const noexcept { return rng(jitter_seed_, jitter_count_.fetch_add(1), 0).uniform(); }

  /// True while nothing names the region that requests for `bucket` go to. A custom endpoint needs none, and the name
  /// of an access point has its own.
  bool lacks_region(const std::string& bucket) const;
  /// Remembers the region of this machine, for when nothing else names one.
  void learn_own_region(std::string region) const {
    std::lock_guard lock(mutex_);
    own_region_ = std::move(region);
  }

  /// The configuration for one bucket: with the region that the store named for it, once it has.
  config for_bucket(const std::string& bucket) const;
  /// Remembers a bucket's region; false when that is the one in use already.
  bool learn_region(const std::string& bucket, const std::string& region) const;

  /// The CRC that objects of the store are likely to have, since another one has it: computed while bytes arrive.
  crc_kind expected_crc() const noexcept { return expected_crc_.load(std::memory_order_relaxed); }
  void expect_crc(crc_kind k) const noexcept { expected_crc_.store(k, std::memory_order_relaxed); }

  /// True if the store compares If-Match of a part of an upload (`?partNumber=`) with an ETag of the part (moto does),
  /// and not with that of the object: then requests for parts have none.
  bool parts_have_etags() const noexcept { return parts_have_etags_.load(std::memory_order_relaxed); }
  void expect_etags_of_parts() const noexcept { parts_have_etags_.store(true, std::memory_order_relaxed); }

  /// Unix seconds of the store's clock, as far as it is known.
  std::int64_t now() const noexcept { return static_cast<std::int64_t>(std::time(nullptr)) + skew_.load(); }
  /// Remembers the store's clock from its Date header.
  void learn_time(std::int64_t server_now) const noexcept {
    skew_.store(server_now - static_cast<std::int64_t>(std::time(nullptr)));
  }

 private:
  struct bucket_facts {
    std::string bucket;
    std::string region;  // empty: not learnt
    std::shared_ptr<credentials_provider> sessions;
    bucket_facts* next;
  };
  /// Null while nothing is known of the bucket.
  bucket_facts* find(const std::string& bucket) const noexcept;
  bucket_facts& facts_of(const std::string& bucket) const;

  const config config_;
  const std::shared_ptr<credentials_provider> provider_;
  const std::shared_ptr<const http::transport_options> transport_;
  retry_options retries_;
  const std::uint64_t jitter_seed_;
  mutable std::atomic<std::uint64_t> jitter_count_{0};
  mutable retry_quota quota_;
  mutable std::mutex mutex_;
  mutable bucket_facts* buckets_ = nullptr;  // a few; a map of another type costs every compilation 2 MB
  mutable std::string own_region_;
  mutable std::atomic<std::int64_t> skew_{0};
  mutable std::atomic<crc_kind> expected_crc_{crc_kind::none};
  mutable std::atomic<bool> parts_have_etags_{false};
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/session.ipp>
#endif
