// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/units.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/feed/detail/indexed_object.hpp>
#include <millrace/feed/index_builder.hpp>
#include <millrace/feed/shard_index.hpp>
#include <millrace/shards/detail/archive_warnings.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace {

/// How index_shard() reads a shard.
enum class index_way : unsigned char {
  cheaper,  ///< by the one of the others that costs less, judged by the first MiB of the shard
  stream,   ///< all of it, once; the index has checksums
  headers,  ///< from header to header by small ranges, bodies are not read; the index has no checksums
};

struct index_shard_options {
  index_way way = index_way::cheaper;
  /// Bytes of one request of a stream; at least 64 KiB.
  std::size_t part = 8 * MiB;
  /// Bytes of one request for headers, with what small members follow; at least 512.
  std::size_t hop = 16 * KiB;
  /// What a request costs beside its bytes, in bytes: about what could be read in the time that it takes to answer.
  std::uint64_t request_cost = MiB;
  /// Say in the log what is odd about an archive's end but no error, as untar() does.
  bool report = true;
};

/// What reading costs.
struct reading_cost {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;

  /// Both in one number; a request costs `request_cost` bytes.
  std::uint64_t total(std::uint64_t request_cost) const noexcept { return requests * request_cost + bytes; }
};

/// Of `bytes` read in a row.
inline reading_cost cost_of_stream(std::uint64_t bytes, const index_shard_options& options) noexcept {
  return {(bytes + options.part - 1) / options.part, bytes};
}

/// Of the headers alone in `bytes` of an archive whose members, headers included, take `mean_member` bytes: a request
/// for each, or for as many as one request shows.
inline reading_cost cost_of_headers(std::uint64_t bytes, std::uint64_t mean_member,
                                    const index_shard_options& options) noexcept {
  const std::uint64_t stride = std::max<std::uint64_t>({mean_member, options.hop, 1});
  const std::uint64_t hops = (bytes + stride - 1) / stride;
  return {hops, std::min(bytes, hops * options.hop)};
}

/// Makes the index of a plain tar shard that lies in a store, which calls it `name`. The object must stay the version
/// that was read first, and be that of `object`'s ETag and size where these are known.
///
/// Bounds: one request at a time, and the memory of a part and of a member that straddles two. Dropping the task ends
/// the transfer. A store that does not serve ranges is read as a stream.
///
/// What is odd about the archive's end, but no error, is said in the log, as untar() says it. Errors: those of the
/// store; archive_error, as of untar_plain() and group_samples(), for what cannot be read or grouped, and for
/// compressed archives; changed_error where the size is not the one that was listed.
template <class Storage = storage>
task<shard_index> index_shard(std::shared_ptr<const Storage> from, shard object, std::string name,
                              index_shard_options options = {});

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

template <class Storage>
task<shard_index> index_shard(std::shared_ptr<const Storage> from, shard object, std::string name,
                              index_shard_options options) {
  options.part = std::max<std::size_t>(options.part, 64 * KiB);
  options.hop = std::clamp<std::size_t>(options.hop, 512, options.part);
  const std::size_t probe = options.way == index_way::stream    ? options.part
                            : options.way == index_way::headers ? options.hop
                                                                : std::min<std::size_t>(options.part, MiB);
  detail::indexed_object source(std::move(from), std::move(object), options.part);
  bytes head = co_await source.read(0, probe);
  bool headers = options.way == index_way::headers;
  if (options.way == index_way::cheaper && source.total() && *source.total() > head.size()) {
    const std::uint64_t mean = detail::mean_member_of(source.object(), head);
    const std::uint64_t left = *source.total() - head.size();
    headers = mean != 0 && cost_of_headers(left, mean, options).total(options.request_cost) <
                               cost_of_stream(left, options).total(options.request_cost);
  }
  if (source.sequential() || !source.total()) headers = false;
  tar::reader reader = detail::index_reader(source.object(), headers);
  index_builder builder(std::move(name), source.object().shown(),
                        headers ? index_builder::checksums::none : index_builder::checksums::crc32c);
  std::uint64_t fed = head.size();
  reader.feed(std::move(head));
  tar::entry e;
  bool finished = false;
  for (;;) {
    if (reader.next(e)) {
      builder.add(e);
      continue;
    }
    if (reader.done()) break;
    if (headers) {
      const std::uint64_t next = reader.skip();
      if (next > fed) {
        fed = next;
        continue;
      }
    }
    if (finished) break;
    if (source.ended(fed)) {
      finished = true;
      reader.finish();
      continue;
    }
    const std::size_t length = headers ? options.hop : options.part;
    bytes more = co_await source.read(fed, length);
    fed += more.size();
    reader.feed(std::move(more));
  }
  // What the store has not said is known when the object has been read to its end.
  while (!source.total() && !source.ended(fed)) {
    const bytes more = co_await source.read(fed, options.part);
    fed += more.size();
  }
  executor& ex = co_await this_executor();
  detail::archive_warnings warnings(ex, options.report);
  warnings.add(source.object(), reader.warning());
  const std::uint64_t size = source.size();
  co_return builder.finish(size, source.object().etag);
}

}  // namespace millrace
