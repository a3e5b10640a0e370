// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  std::string put(const std::string& bucket, const std::string& key, object o);
  std::string put(const std::string& bucket, const std::string& key, bytes content) {
    return put(bucket, key, object(std::move(content)));
  }
  std::string put(const std::string& bucket, const std::string& key, std::string_view content) {
    return put(bucket, key, bytes::copy(content));
  }

  /// Null when there is no such bucket or key.
  std::shared_ptr<const object> find(std::string_view bucket, std::string_view key) const;
  /// Number of objects in a bucket.
  std::size_t size(std::string_view bucket) const;
  /// False when it was not there.
  bool erase(std::string_view bucket, std::string_view key);
  /// Gives an object a new ETag and date, the content unchanged: as if somebody had replaced it.
  void replace(const std::string& bucket, const std::string& key);

  // ---- for requests

  /// Stores `o`; with `only_new`, refuses when the key exists; with `expected`, when it does not have that ETag.
  std::string put_checked(const std::string& bucket, const std::string& key, object o, bool only_new,
                          const std::string* expected);
  std::shared_ptr<const object> get(const std::string& bucket, const std::string& key);
  detail::list_page list(const std::string& bucket, const std::string& prefix, std::string_view delimiter,
                         const detail::list_position& from, std::size_t limit) {
    std::lock_guard lock(mutex_);
    return detail::list(existing(bucket), prefix, delimiter, from, limit);
  }

  // ---- multipart uploads

  std::string start_upload(upload u);
  void put_part(const std::string& id, const std::string& bucket, const std::string& key, std::uint64_t number,
                object part);
  /// A copy, to look at.
  upload find_upload(const std::string& id, const std::string& bucket, const std::string& key) {
    std::lock_guard lock(mutex_);
    return existing_upload(id, bucket, key);
  }
  void abort_upload(const std::string& id, const std::string& bucket, const std::string& key);
  /// (key, id) of the open uploads of a bucket whose keys begin with `prefix`, in the order of the keys.
  std::vector<std::pair<std::string, std::string>> list_uploads(const std::string& bucket, const std::string& prefix);
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
  detail::object_map& existing(const std::string& bucket);
  upload& existing_upload(const std::string& id, const std::string& bucket, const std::string& key);

  const server_clock& clock_;
  mutable std::mutex mutex_;
  std::map<std::string, detail::object_map, std::less<>> buckets_;
  std::map<std::string, upload> uploads_;
  std::uint64_t last_upload_ = 0;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/impl/store.ipp>
#endif
