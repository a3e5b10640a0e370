// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/detail/shown_url.hpp>

namespace millrace {

/// One object of a store that holds samples: what sources list and `fetch` reads.
class shard {
 public:
  shard() = default;
  explicit shard(std::string shard_url, std::optional<std::uint64_t> bytes = std::nullopt,
                 std::string tag = std::string())
      : url(std::move(shard_url)), size(bytes), etag(std::move(tag)) {}

  std::string url;                    ///< s3://bucket/key (the key's raw bytes), http(s)://..., or a file's path
  std::optional<std::uint64_t> size;  ///< in bytes, when the source knows it
  std::string etag;  ///< as the store sends it, quotes included; empty when the source does not know it
  std::uint64_t seed = 0;   ///< of the training that reads it
  std::uint64_t epoch = 0;  ///< in which it is read, of its data set; samples have them from their shard
  std::uint32_t dataset = 0;  ///< of a mix of data sets (dataset_mix): its number; samples have it from their shard
  bool dealt = false;       ///< whether seed and epoch were said, by epochs()

  /// The URL as messages show it: without user information and query, which may be secrets (a presigned URL). Names of
  /// objects in S3 and of files are shown whole: there `?` and `#` are part of the name.
  std::string shown() const {
    return detail::shown_url(url);
  }

  /// Whether they are the same version of the same object, whoever reads it and when.
  friend bool operator==(const shard& a, const shard& b) {
    return a.url == b.url && a.size == b.size && a.etag == b.etag;
  }
};

}  // namespace millrace
