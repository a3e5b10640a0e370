// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/sample_index_builder.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace::inline MILLRACE_ABI {

/// How the index of a tar is made.
enum class index_way : unsigned char {
  cheaper,  ///< by the one of the others that costs less, judged by the first MiB of the shard
  stream,   ///< all of it, once; the index has checksums
  headers,  ///< from header to header by small ranges, bodies are not read; the index has no checksums
};

struct tar_shards_options {
  index_way way = index_way::cheaper;
  /// Bytes of one request for headers, with what small members follow; at least 512.
  std::size_t hop = 16 * KiB;
  /// The cost of a request beside its bytes, in bytes: about what could be read in the time that it takes to answer.
  std::uint64_t request_cost = MiB;
  std::uint64_t max_member = GiB;  ///< in bytes; a longer one is an archive_error when the index is made
};

/// Shards are plain tars. Files of one key are a sample, as in WebDataset (sample_name). The format of a dataset that
/// says none.
///
/// Errors, when the index is made: archive_error, as of untar_plain() and group_samples(), for what cannot be read or
/// grouped and for compressed archives.
std::shared_ptr<const shard_format> tar_shards(tar_shards_options options = {});

/// What reading costs.
struct reading_cost {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;

  /// Both in one number; a request costs `request_cost` bytes.
  std::uint64_t total(std::uint64_t request_cost) const noexcept { return requests * request_cost + bytes; }
};

/// Of `bytes` read in a row by requests of `part`.
inline reading_cost cost_of_stream(std::uint64_t bytes, std::size_t part) noexcept {
  return {bytes / part + (bytes % part != 0), bytes};
}

/// Of the headers alone in `bytes` of an archive whose members, headers included, take `mean_member` bytes: a request
/// of `hop` bytes for each, or for as many as one request shows.
inline reading_cost cost_of_headers(std::uint64_t bytes, std::uint64_t mean_member, std::size_t hop) noexcept {
  const std::uint64_t stride = std::max<std::uint64_t>({mean_member, hop, 1});
  const std::uint64_t hops = (bytes + stride - 1) / stride;
  return {hops, std::min<std::uint64_t>(bytes, detail::multiplied(hops, hop))};
}

/// Makes the index of a tar from its members, in their order, as a tar::reader or untar() yields them. It groups them
/// as group_samples() does, and refuses what that refuses, with the same errors: so an index and a reading of its shard
/// agree on every sample, or there is none.
class tar_index_builder {
 public:
  enum class checksums : unsigned char {
    none,    ///< the members have no bodies: they come from headers alone
    crc32c,  ///< of every body
  };

  /// `name` is what the index calls the shard; `object` names it in errors.
  tar_index_builder(std::string name, std::string object, checksums sums);

  /// The archive's next entry. Entries that are no regular files are skipped, as untar() does.
  void add(const tar::entry& e);

  /// How many samples there are so far, the last one included, which may be growing.
  std::size_t samples() const noexcept { return index_.samples(); }

  /// The message about a shard that has members but no samples; empty if it has samples.
  std::string warning() const;

  /// The index. `size` and `etag` are those of the object that was read.
  shard_index finish(std::uint64_t size, std::string etag);

 private:
  sample_index_builder index_;
  checksums sums_;
  std::string object_;
  std::uint64_t members_ = 0;
  std::uint64_t files_ = 0;
  char first_type_ = '0';
  std::string first_name_;  // where that gives no sample
  std::string key_;         // of the last sample; no sample has an empty one
};

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/tar_shards.ipp>
#endif
