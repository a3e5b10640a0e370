// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/memory/bytes.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/message.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

/// The wall clock of a server: the machine's, moved by an offset that may be changed while the server runs.
class server_clock {
 public:
  explicit server_clock(std::int64_t offset_seconds = 0) noexcept : offset_(offset_seconds) {}

  /// Unix time in seconds.
  std::int64_t now() const noexcept {
    return static_cast<std::int64_t>(::time(nullptr)) + offset_.load(std::memory_order_relaxed);
  }
  void set_offset(std::int64_t seconds) noexcept { offset_.store(seconds, std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> offset_;
};

/// One object of a store; never changed once it is stored. The content is a list of slices, shared by every answer that
/// is on its way.
class object {
 public:
  using field = std::pair<std::string, std::string>;

  object() = default;
  /// The ETag is the quoted MD5 of the content unless one is given.
  explicit object(bytes whole, std::string tag = std::string()) : size(whole.size()), etag(std::move(tag)) {
    if (etag.empty()) etag = '"' + detail::to_hex(detail::digest_of("MD5", whole.view())) + '"';
    if (!whole.empty()) content.push_back(std::move(whole));
  }

  std::vector<bytes> content;
  std::uint64_t size = 0;
  std::string etag;              ///< with its quotes
  std::int64_t modified = 0;     ///< Unix time
  std::vector<field> fields;     ///< Content-Type, x-amz-meta-*, ...: sent with every answer
  std::vector<field> checksums;  ///< x-amz-checksum-*: sent when they are asked for

  std::vector<std::uint64_t> parts;  ///< sizes of those of the upload that made it; empty: it came in one request

  /// The checksum with that field name; empty when there is none.
  std::string checksum(std::string_view name) const;

  /// The slices of [first, first + length), sharing the memory. The range must lie inside.
  std::vector<bytes> range(std::uint64_t first, std::uint64_t length) const;
};

/// A multipart upload that is neither completed nor aborted.
class upload {
 public:
  upload() = default;
  upload(std::string in_bucket, std::string of_key, std::vector<object::field> object_fields)
      : bucket(std::move(in_bucket)), key(std::move(of_key)), fields(std::move(object_fields)) {}

  /// A part as the client claims it: number, ETag (with or without quotes) and checksum (empty: none given).
  class claim {
   public:
    std::uint64_t number = 0;
    std::string etag;
    std::string checksum;
  };
  using part_list = std::vector<claim>;

  std::string bucket;
  std::string key;
  std::vector<object::field> fields;
  std::string algorithm;   ///< of the checksum that every part must have ("crc32c"); empty: none
  bool composite = false;  ///< the object's checksum is that of the parts' checksums, which are to be listed
  std::map<std::uint64_t, std::shared_ptr<const object>> parts;

  /// The name of the field with the checksum of a part.
  std::string checksum_field() const { return "x-amz-checksum-" + algorithm; }

  /// The object made of `wanted`; throws refusal. The ETag is the MD5 of the parts' MD5s and their number, as S3's.
  object assemble(const part_list& wanted, std::uint64_t min_part_size) const;

 private:
  void check(const claim& wanted, const object& part) const;
  static std::string unquoted(const std::string& tag) {
    return tag.size() >= 2 && tag.front() == '"' && tag.back() == '"' ? tag.substr(1, tag.size() - 2) : tag;
  }
  static std::string from_hex(const std::string& hex);
};

}  // namespace millrace::s3_server

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

using object_map = std::map<std::string, std::shared_ptr<const object>, std::less<>>;

/// The place where a listing continues: after a key, or after every key that begins with a prefix.
class list_position {
 public:
  list_position() = default;
  list_position(std::string after, bool whole_prefix) : text(std::move(after)), prefix(whole_prefix) {}
  std::string text;
  bool prefix = false;
};

class list_page {
 public:
  std::vector<std::pair<std::string, std::shared_ptr<const object>>> objects;
  std::vector<std::string> prefixes;
  bool truncated = false;
  list_position next;  // when truncated

  std::size_t count() const noexcept { return objects.size() + prefixes.size(); }
};

/// One page of ListObjectsV2: keys with `prefix` after `from` in the order of their bytes; keys that have `delimiter`
/// after the prefix are rolled up. A key and a rolled-up prefix count the same towards `limit`.
list_page list(const object_map& all, const std::string& prefix, std::string_view delimiter, const list_position& from,
               std::size_t limit);

}  // namespace millrace::s3_server::detail

namespace millrace::inline MILLRACE_ABI::s3_server {

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

  /// Stores an object and makes its bucket if there is none. Returns the ETag.
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
  /// Gives an object a new ETag and date, the content unchanged: as if it had been replaced.
  void replace(const std::string& bucket, const std::string& key);

  // ---- for requests

  /// Stores `o`; with `only_new`, refuses when the key exists; with `expected`, when it does not have that ETag.
  std::string put_checked(const std::string& bucket, const std::string& key, object o, bool only_new,
                          const std::string* expected);
  std::shared_ptr<const object> get(const std::string& bucket, const std::string& key);
  /// Refuses a bucket that has objects.
  void delete_bucket(const std::string& name);
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
  /// Uploads neither completed nor aborted: 0 after a client that cleans up.
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
#include <millrace/testing/s3_server/store.ipp>
#endif
