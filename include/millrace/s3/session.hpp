// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <millrace/http/options.hpp>
#include <millrace/s3/config.hpp>
#include <millrace/s3/credentials_provider.hpp>

namespace millrace::s3 {

/// What the copies of a client share: configuration, credentials, and what was learnt from the store (regions of
/// buckets, the offset of its clock). Thread-safe.
class session {
 public:
  session(config c, std::shared_ptr<credentials_provider> provider, http::transport_options transport)
      : config_(std::move(c)),
        provider_(std::move(provider)),
        transport_(std::make_shared<const http::transport_options>(std::move(transport))) {}

  const config& base() const noexcept { return config_; }
  credentials_provider& provider() const noexcept { return *provider_; }
  const std::shared_ptr<const http::transport_options>& transport() const noexcept { return transport_; }

  /// The configuration for one bucket: with the region that the store named for it, once it has.
  config for_bucket(const std::string& bucket) const {
    config c = config_;
    std::lock_guard lock(mutex_);
    const auto found = regions_.find(bucket);
    if (found != regions_.end()) c.region = found->second;
    return c;
  }
  /// Remembers a bucket's region; false when that is the one in use already.
  bool learn_region(const std::string& bucket, const std::string& region) const {
    std::lock_guard lock(mutex_);
    std::string& known = regions_[bucket];
    if (region.empty() || (known.empty() ? config_.region : known) == region) return false;
    known = region;
    return true;
  }

  /// Unix seconds of the store's clock, as far as it is known.
  std::int64_t now() const noexcept { return static_cast<std::int64_t>(std::time(nullptr)) + skew_.load(); }
  /// Remembers the store's clock from its Date header.
  void learn_time(std::int64_t server_now) const noexcept {
    skew_.store(server_now - static_cast<std::int64_t>(std::time(nullptr)));
  }

 private:
  const config config_;
  const std::shared_ptr<credentials_provider> provider_;
  const std::shared_ptr<const http::transport_options> transport_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::string> regions_;
  mutable std::atomic<std::int64_t> skew_{0};
};

}  // namespace millrace::s3
