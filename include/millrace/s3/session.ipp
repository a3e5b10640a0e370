// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/s3/session.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE session::session(config c, std::shared_ptr<credentials_provider> provider,
                                 http::transport_options transport)
    : config_(std::move(c)),
      provider_(std::move(provider)),
      transport_(new http::transport_options(std::move(transport))),
      retries_(config_.retry),
      jitter_seed_(static_cast<std::uint64_t>(monotonic_ns())),
      quota_(config_.retry.quota) {
  retries_.max_attempts = config_.max_attempts;
}

MILLRACE_INLINE session::~session() {
  while (buckets_ != nullptr) delete std::exchange(buckets_, buckets_->next);
}

MILLRACE_INLINE session::bucket_facts* session::find(const std::string& bucket) const noexcept {
  bucket_facts* each = buckets_;
  while (each != nullptr && each->bucket != bucket) each = each->next;
  return each;
}

MILLRACE_INLINE session::bucket_facts& session::facts_of(const std::string& bucket) const {
  if (bucket_facts* const known = find(bucket)) return *known;
  buckets_ = new bucket_facts{bucket, std::string(), nullptr, buckets_};
  return *buckets_;
}

MILLRACE_INLINE bool session::lacks_region(const std::string& bucket) const {
  if (!config_.region.empty() || !config_.endpoint_url.empty() || bucket.rfind("arn:", 0) == 0) return false;
  std::lock_guard lock(mutex_);
  const bucket_facts* const known = find(bucket);
  return own_region_.empty() && (known == nullptr || known->region.empty());
}

MILLRACE_INLINE credentials_provider* session::bucket_sessions(const std::string& bucket,
                                                               std::shared_ptr<credentials_provider> made) const {
  std::lock_guard lock(mutex_);
  std::shared_ptr<credentials_provider>& kept = facts_of(bucket).sessions;
  if (kept == nullptr) kept = std::move(made);
  return kept.get();
}

MILLRACE_INLINE config session::for_bucket(const std::string& bucket) const {
  config c = config_;
  std::lock_guard lock(mutex_);
  if (c.region.empty()) c.region = own_region_;
  const bucket_facts* const known = find(bucket);
  if (known != nullptr && !known->region.empty()) c.region = known->region;
  return c;
}

MILLRACE_INLINE bool session::learn_region(const std::string& bucket, const std::string& region) const {
  std::lock_guard lock(mutex_);
  std::string& known = facts_of(bucket).region;
  const std::string& default_region = config_.region.empty() ? own_region_ : config_.region;
  if (region.empty() || (known.empty() ? default_region : known) == region) return false;
  known = region;
  return true;
}

}  // namespace millrace::inline MILLRACE_ABI::s3
