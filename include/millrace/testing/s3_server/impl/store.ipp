// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/store.hpp>

namespace millrace::s3_server {

MILLRACE_INLINE std::string store::put(const std::string& bucket, const std::string& key, object o) {
  o.modified = clock_.now();
  auto stored = std::make_shared<const object>(std::move(o));
  std::string etag = stored->etag;
  std::lock_guard lock(mutex_);
  buckets_[bucket][key] = std::move(stored);
  return etag;
}

MILLRACE_INLINE std::shared_ptr<const object> store::find(std::string_view bucket, std::string_view key) const {
  std::lock_guard lock(mutex_);
  const auto b = buckets_.find(bucket);
  if (b == buckets_.end()) return nullptr;
  const auto o = b->second.find(key);
  return o == b->second.end() ? nullptr : o->second;
}

MILLRACE_INLINE std::size_t store::size(std::string_view bucket) const {
  std::lock_guard lock(mutex_);
  const auto b = buckets_.find(bucket);
  return b == buckets_.end() ? 0 : b->second.size();
}

MILLRACE_INLINE bool store::erase(std::string_view bucket, std::string_view key) {
  std::lock_guard lock(mutex_);
  const auto b = buckets_.find(bucket);
  if (b == buckets_.end()) return false;
  const auto o = b->second.find(key);
  if (o == b->second.end()) return false;
  b->second.erase(o);
  return true;
}

MILLRACE_INLINE void store::replace(const std::string& bucket, const std::string& key) {
  const std::shared_ptr<const object> before = find(bucket, key);
  if (before == nullptr) return;
  object after = *before;
  after.etag = '"' + detail::to_hex(detail::digest_of("MD5", before->etag)) + '"';
  put(bucket, key, std::move(after));
}

MILLRACE_INLINE std::string store::put_checked(const std::string& bucket, const std::string& key, object o,
                                               bool only_new, const std::string* expected) {
  o.modified = clock_.now();
  auto stored = std::make_shared<const object>(std::move(o));
  std::lock_guard lock(mutex_);
  detail::object_map& objects = existing(bucket);
  const auto found = objects.find(key);
  if (only_new && found != objects.end()) throw failed_condition("If-None-Match");
  if (expected != nullptr) {
    if (found == objects.end()) throw no_such_key(key);
    if (found->second->etag != *expected) throw failed_condition("If-Match");
  }
  std::string etag = stored->etag;
  objects[key] = std::move(stored);
  return etag;
}

MILLRACE_INLINE std::shared_ptr<const object> store::get(const std::string& bucket, const std::string& key) {
  std::lock_guard lock(mutex_);
  detail::object_map& objects = existing(bucket);
  const auto found = objects.find(key);
  if (found == objects.end()) throw no_such_key(key);
  return found->second;
}

MILLRACE_INLINE std::string store::start_upload(upload u) {
  std::lock_guard lock(mutex_);
  existing(u.bucket);
  std::string id = "upload-" + std::to_string(++last_upload_);
  uploads_.emplace(id, std::move(u));
  return id;
}

MILLRACE_INLINE void store::put_part(const std::string& id, const std::string& bucket, const std::string& key,
                                     std::uint64_t number, object part) {
  part.modified = clock_.now();
  std::lock_guard lock(mutex_);
  upload& u = existing_upload(id, bucket, key);
  if (!u.algorithm.empty() && part.checksum(u.checksum_field()).empty()) {
    throw refusal(400, "InvalidRequest", "the upload was created with a checksum that this part does not have");
  }
  u.parts[number] = std::make_shared<const object>(std::move(part));
}

MILLRACE_INLINE void store::abort_upload(const std::string& id, const std::string& bucket, const std::string& key) {
  std::lock_guard lock(mutex_);
  existing_upload(id, bucket, key);
  uploads_.erase(id);
}

MILLRACE_INLINE std::vector<std::pair<std::string, std::string>> store::list_uploads(const std::string& bucket,
                                                                                     const std::string& prefix) {
  std::lock_guard lock(mutex_);
  existing(bucket);
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& [id, u] : uploads_) {
    if (u.bucket == bucket && u.key.compare(0, prefix.size(), prefix) == 0) found.emplace_back(u.key, id);
  }
  std::sort(found.begin(), found.end());
  return found;
}

MILLRACE_INLINE detail::object_map& store::existing(const std::string& bucket) {
  const auto found = buckets_.find(bucket);
  if (found == buckets_.end()) {
    throw refusal(404, "NoSuchBucket", "The specified bucket does not exist").with("BucketName", bucket);
  }
  return found->second;
}

MILLRACE_INLINE upload& store::existing_upload(const std::string& id, const std::string& bucket,
                                               const std::string& key) {
  const auto found = uploads_.find(id);
  if (found == uploads_.end() || found->second.bucket != bucket || found->second.key != key) {
    throw refusal(404, "NoSuchUpload", "The specified upload does not exist.").with("UploadId", id);
  }
  return found->second;
}

}  // namespace millrace::s3_server
