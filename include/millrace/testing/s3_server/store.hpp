// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/testing/s3_server/detail/listing.hpp>
#include <millrace/testing/s3_server/object.hpp>
#include <millrace/testing/s3_server/refusal.hpp>
#include <millrace/testing/s3_server/server_clock.hpp>
#include <millrace/testing/s3_server/upload.hpp>

namespace millrace::s3_server {

/// The buckets, objects and unfinished uploads of a server, in memory. Thread-safe: tests put and look while the server
/// runs. Functions that serve requests throw refusal.
class store {
 public:
  explicit store(const server_clock& time) : clock_(time) {}
  store(const store&) = delete;
  store& operator=(const store&) = delete;

  /// False when it was there already.
  bool create_bucket(const std::string& name) {
    std::lock_guard lock(mutex_);
    return buckets_.try_emplace(name).second;
  }
  bool has_bucket(std::string_view name) const {
    std::lock_guard lock(mutex_);
    return buckets_.find(name) != buckets_.end();
  }

  /// Stores an object and makes its bucket where there is none. Returns the ETag.
  std::string put(const std::string& bucket, const std::string& key, object o) {
    o.modified = clock_.now();
    auto stored = std::make_shared<const object>(std::move(o));
    std::string etag = stored->etag;
    std::lock_guard lock(mutex_);
    buckets_[bucket][key] = std::move(stored);
    return etag;
  }
  std::string put(const std::string& bucket, const std::string& key, bytes content) {
    return put(bucket, key, object(std::move(content)));
  }
  std::string put(const std::string& bucket, const std::string& key, std::string_view content) {
    return put(bucket, key, bytes::copy(content));
  }

  /// Null when there is no such bucket or key.
  std::shared_ptr<const object> find(std::string_view bucket, std::string_view key) const {
    std::lock_guard lock(mutex_);
    const auto b = buckets_.find(bucket);
    if (b == buckets_.end()) return nullptr;
    const auto o = b->second.find(key);
    return o == b->second.end() ? nullptr : o->second;
  }
  /// Number of objects in a bucket.
  std::size_t size(std::string_view bucket) const {
    std::lock_guard lock(mutex_);
    const auto b = buckets_.find(bucket);
    return b == buckets_.end() ? 0 : b->second.size();
  }
  /// False when it was not there.
  bool erase(std::string_view bucket, std::string_view key) {
    std::lock_guard lock(mutex_);
    const auto b = buckets_.find(bucket);
    if (b == buckets_.end()) return false;
    const auto o = b->second.find(key);
    if (o == b->second.end()) return false;
    b->second.erase(o);
    return true;
  }
  /// Gives an object a new ETag and date, the content unchanged: as if somebody had replaced it.
  void replace(const std::string& bucket, const std::string& key) {
    const std::shared_ptr<const object> before = find(bucket, key);
    if (before == nullptr) return;
    object after = *before;
    after.etag = '"' + detail::to_hex(detail::digest_of("MD5", before->etag)) + '"';
    put(bucket, key, std::move(after));
  }

  // ---- for requests

  /// Stores `o`; with `only_new`, refuses when the key exists; with `expected`, when it does not have that ETag.
  std::string put_checked(const std::string& bucket, const std::string& key, object o, bool only_new,
                          const std::string* expected) {
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
  std::shared_ptr<const object> get(const std::string& bucket, const std::string& key) {
    std::lock_guard lock(mutex_);
    detail::object_map& objects = existing(bucket);
    const auto found = objects.find(key);
    if (found == objects.end()) throw no_such_key(key);
    return found->second;
  }
  detail::list_page list(const std::string& bucket, const std::string& prefix, std::string_view delimiter,
                         const detail::list_position& from, std::size_t limit) {
    std::lock_guard lock(mutex_);
    return detail::list(existing(bucket), prefix, delimiter, from, limit);
  }

  // ---- multipart uploads

  std::string start_upload(upload u) {
    std::lock_guard lock(mutex_);
    existing(u.bucket);
    std::string id = "upload-" + std::to_string(++last_upload_);
    uploads_.emplace(id, std::move(u));
    return id;
  }
  void put_part(const std::string& id, const std::string& bucket, const std::string& key, std::uint64_t number,
                object part) {
    part.modified = clock_.now();
    std::lock_guard lock(mutex_);
    upload& u = existing_upload(id, bucket, key);
    if (!u.algorithm.empty() && part.checksum(u.checksum_field()).empty()) {
      throw refusal(400, "InvalidRequest", "the upload was created with a checksum that this part does not have");
    }
    u.parts[number] = std::make_shared<const object>(std::move(part));
  }
  /// A copy, to look at.
  upload find_upload(const std::string& id, const std::string& bucket, const std::string& key) {
    std::lock_guard lock(mutex_);
    return existing_upload(id, bucket, key);
  }
  void abort_upload(const std::string& id, const std::string& bucket, const std::string& key) {
    std::lock_guard lock(mutex_);
    existing_upload(id, bucket, key);
    uploads_.erase(id);
  }
  /// (key, id) of the open uploads of a bucket whose keys begin with `prefix`, in the order of the keys.
  std::vector<std::pair<std::string, std::string>> list_uploads(const std::string& bucket, const std::string& prefix) {
    std::lock_guard lock(mutex_);
    existing(bucket);
    std::vector<std::pair<std::string, std::string>> found;
    for (const auto& [id, u] : uploads_) {
      if (u.bucket == bucket && u.key.compare(0, prefix.size(), prefix) == 0) found.emplace_back(u.key, id);
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  /// Uploads neither completed nor aborted: what a client that cleans up leaves at 0.
  std::size_t open_uploads() const {
    std::lock_guard lock(mutex_);
    return uploads_.size();
  }

 private:
  static refusal failed_condition(const char* name) {
    return refusal(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        .with("Condition", name);
  }
  static refusal no_such_key(const std::string& key) {
    return refusal(404, "NoSuchKey", "The specified key does not exist.").with("Key", key);
  }
  detail::object_map& existing(const std::string& bucket) {
    const auto found = buckets_.find(bucket);
    if (found == buckets_.end()) {
      throw refusal(404, "NoSuchBucket", "The specified bucket does not exist").with("BucketName", bucket);
    }
    return found->second;
  }
  upload& existing_upload(const std::string& id, const std::string& bucket, const std::string& key) {
    const auto found = uploads_.find(id);
    if (found == uploads_.end() || found->second.bucket != bucket || found->second.key != key) {
      throw refusal(404, "NoSuchUpload", "The specified upload does not exist.").with("UploadId", id);
    }
    return found->second;
  }

  const server_clock& clock_;
  mutable std::mutex mutex_;
  std::map<std::string, detail::object_map, std::less<>> buckets_;
  std::map<std::string, upload> uploads_;
  std::uint64_t last_upload_ = 0;
};

}  // namespace millrace::s3_server
