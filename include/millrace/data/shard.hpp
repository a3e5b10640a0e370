// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI {

/// One object of a store that holds samples: listed by sources and read by `fetch`.
class shard {
 public:
  shard() = default;
  explicit shard(std::string shard_url, std::optional<std::uint64_t> bytes = std::nullopt,
                 std::string tag = std::string())
      : url(std::move(shard_url)), size(bytes), etag(std::move(tag)) {}

  std::string url;                    ///< s3://bucket/key (the key's raw bytes), http(s)://..., or a file's path
  std::optional<std::uint64_t> size;  ///< in bytes, when the source knows it
  std::string etag;  ///< of the version, as the store spells it (see same_etag); empty when it is not known
  std::string encoding;  ///< its Content-Encoding, as the store sent it with the first bytes; else empty
  std::uint64_t seed = 0;   ///< of the training that reads it
  std::uint64_t epoch = 0;  ///< in which it is read, of its data set; samples have them from their shard
  std::uint32_t dataset = 0;  ///< of a mix of data sets (dataset_mix): its number; samples have it from their shard
  bool dealt = false;       ///< epochs() has set seed and epoch
  /// The `arrays` whose rows are the samples of a dataset of arrays; else null.
  std::shared_ptr<const void> rows;

  /// The URL as messages show it: without user information and query, which may be secrets (a presigned URL). Names of
  /// objects in S3 and of files are shown whole: there `?` and `#` are part of the name.
  std::string shown() const {
    return detail::shown_url(url);
  }

  /// True if they are the same version of the same object; seed, epoch and the rest do not count.
  friend bool operator==(const shard& a, const shard& b) {
    return a.url == b.url && a.size == b.size && millrace::detail::same_etag(a.etag, b.etag);
  }
};

namespace detail {

/// Returns true if a listing of `wanted` (a prefix or a pattern) leaves out `name`, a key or a path: an index that
/// millrace-index has written among the shards, or has not finished, or a file that write_shards() writes beside them,
/// which ends in ".millrace.index" or ".millrace.json". One that is named in full is not left out.
inline bool is_index_beside(std::string_view wanted, std::string_view name) noexcept {
  const std::string_view last = name.substr(name.rfind('/') + 1);
  for (const std::string_view kind : {"millrace.index", "millrace.json", "millrace.index.part", "millrace.listing"}) {
    if (last.size() < kind.size() || last.substr(last.size() - kind.size()) != kind) continue;
    const bool part_of_it = last.size() == kind.size() || last[last.size() - kind.size() - 1] == '.';
    return part_of_it && name != wanted;
  }
  return false;
}

/// The text that the log has for files left out: the name, or the pattern of all that are beside the shards of a
/// folder.
inline std::string shown_beside(std::string_view name) {
  const std::size_t last = name.rfind('/') + 1;
  const std::size_t kind = name.find("millrace.", last);
  if (kind == last) return std::string(name);
  return std::string(name.substr(0, last)) + "*." + std::string(name.substr(kind));
}

}  // namespace detail

/// Samples that a training could not read of one shard, if a failure_policy tolerates it.
class lost_shard {
 public:
  std::string shard;          ///< its URL, without secrets
  std::uint64_t samples = 0;  ///< of this rank, epoch by epoch
  std::string reason;         ///< of the first of them
};

}  // namespace millrace
