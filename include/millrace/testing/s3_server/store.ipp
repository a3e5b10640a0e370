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
#include <millrace/testing/s3_server/message.hpp>
#include <millrace/testing/s3_server/store.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

MILLRACE_INLINE std::string object::checksum(std::string_view name) const {
  for (const field& f : checksums) {
    if (f.first == name) return f.second;
  }
  return std::string();
}

MILLRACE_INLINE std::vector<bytes> object::range(std::uint64_t first, std::uint64_t length) const {
  std::vector<bytes> out;
  for (const bytes& piece : content) {
    if (length == 0) break;
    if (first >= piece.size()) {
      first -= piece.size();
      continue;
    }
    const std::uint64_t taken = std::min<std::uint64_t>(length, piece.size() - first);
    out.push_back(piece.slice(static_cast<std::size_t>(first), static_cast<std::size_t>(taken)));
    first = 0;
    length -= taken;
  }
  return out;
}

MILLRACE_INLINE object upload::assemble(const part_list& wanted, std::uint64_t min_part_size) const {
  if (wanted.empty()) throw refusal(400, "MalformedXML", "the upload is completed with no part");
  object whole;
  std::string sums;
  std::string checksums;
  for (std::size_t i = 1; i < wanted.size(); ++i) {
    if (wanted[i].number <= wanted[i - 1].number) {
      throw refusal(400, "InvalidPartOrder", "the list of parts is not in ascending order");
    }
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::uint64_t number = wanted[i].number;
    const auto found = parts.find(number);
    if (found == parts.end() || unquoted(found->second->etag) != unquoted(wanted[i].etag)) {
      throw refusal(400, "InvalidPart", "part " + std::to_string(number) + " is not there, or its ETag differs");
    }
    const object& part = *found->second;
    if (i + 1 < wanted.size() && part.size < min_part_size) {
      throw refusal(400, "EntityTooSmall", "part " + std::to_string(number) + " is smaller than the minimum")
          .with("ProposedSize", std::to_string(part.size))
          .with("MinSizeAllowed", std::to_string(min_part_size))
          .with("PartNumber", std::to_string(number));
    }
    check(wanted[i], part);
    for (const bytes& piece : part.content) whole.content.push_back(piece);
    whole.size += part.size;
    whole.parts.push_back(part.size);
    sums += from_hex(unquoted(part.etag));
    if (composite) checksums += detail::from_base64(part.checksum(checksum_field()));
  }
  whole.etag = '"' + detail::to_hex(detail::digest_of("MD5", sums)) + '-' + std::to_string(wanted.size()) + '"';
  if (composite) {
    whole.checksums.emplace_back(checksum_field(), detail::to_base64(detail::checksum_of(algorithm, checksums)) + '-' +
                                                       std::to_string(wanted.size()));
    whole.checksums.emplace_back("x-amz-checksum-type", "COMPOSITE");
  } else if (!algorithm.empty()) {
    std::string content;
    for (const bytes& piece : whole.content) content += piece.view();
    whole.checksums.emplace_back(checksum_field(), detail::to_base64(detail::checksum_of(algorithm, content)));
  }
  whole.fields = fields;
  return whole;
}

MILLRACE_INLINE void upload::check(const claim& wanted, const object& part) const {
  if (algorithm.empty()) return;
  if (composite && wanted.checksum.empty()) {
    throw refusal(400, "InvalidRequest",
                  "the upload was created with a checksum, which is missing for part " + std::to_string(wanted.number) +
                      " in the list of parts");
  }
  if (!wanted.checksum.empty() && wanted.checksum != part.checksum(checksum_field())) {
    throw refusal(400, "InvalidPart", "the checksum of part " + std::to_string(wanted.number) + " differs");
  }
}

MILLRACE_INLINE std::string upload::from_hex(const std::string& hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  }
  return out;
}

}  // namespace millrace::s3_server

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

/// The first key of `all` that does not begin with `prefix` and is not before it.
MILLRACE_INLINE object_map::const_iterator behind_prefix(const object_map& all, std::string prefix) {
  while (!prefix.empty()) {
    const auto last = static_cast<unsigned char>(prefix.back());
    if (last != 0xff) {
      prefix.back() = static_cast<char>(last + 1);
      return all.lower_bound(prefix);
    }
    prefix.pop_back();
  }
  return all.end();
}

MILLRACE_INLINE list_page list(const object_map& all, const std::string& prefix, std::string_view delimiter,
                               const list_position& from, std::size_t limit) {
  list_page page;
  auto it = all.lower_bound(prefix);
  if (!from.text.empty()) {
    const auto behind = from.prefix ? behind_prefix(all, from.text) : all.upper_bound(from.text);
    if (behind == all.end() || (it != all.end() && behind->first > it->first)) it = behind;
  }
  while (it != all.end() && it->first.compare(0, prefix.size(), prefix) == 0) {
    if (page.count() == limit) {
      page.truncated = limit > 0;
      return page;
    }
    const std::size_t at = delimiter.empty() ? std::string::npos : it->first.find(delimiter, prefix.size());
    if (at == std::string::npos) {
      page.objects.emplace_back(it->first, it->second);
      page.next = list_position(it->first, false);
      ++it;
    } else {
      page.prefixes.push_back(it->first.substr(0, at + delimiter.size()));
      page.next = list_position(page.prefixes.back(), true);
      it = behind_prefix(all, page.prefixes.back());
    }
  }
  return page;
}

}  // namespace millrace::s3_server::detail

namespace millrace::inline MILLRACE_ABI::s3_server {

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

MILLRACE_INLINE void store::delete_bucket(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (!existing(name).empty()) {
    throw refusal(409, "BucketNotEmpty", "The bucket you tried to delete is not empty").with("BucketName", name);
  }
  buckets_.erase(name);
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
