// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

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

  friend bool operator==(const shard& a, const shard& b) {
    return a.url == b.url && a.size == b.size && a.etag == b.etag;
  }
};

}  // namespace millrace
