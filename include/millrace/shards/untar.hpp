// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/flow/pipe.hpp>
#include <millrace/shards/detail/untar_chunks.hpp>
#include <millrace/tar/archive_reader.hpp>

namespace millrace {

/// Stage: chunks -> members. Untars one object after the other as its pieces arrive. A plain tar is walked without
/// copying: bodies are slices of the fetched slabs, except the few that straddle two. Compressed tars (gzip, bzip2, xz,
/// zstd, lz4), zip and cpio are recognised by their first bytes and unpacked by libarchive in a fiber, on the loop's
/// thread (a core unpacks 0.4 GB/s of gzip).
///
/// Directories, links and devices are passed over. A broken or cut archive is an archive_error with object and byte
/// offset, after every member that came before it whole, whose number it says, as does an error of fetching; so is an
/// object of no bytes, unless options.members.allow_empty. Damage inside compressed data may show only at their
/// checksum, which stands behind them (of gzip at the end of the object): what came before the error may be wrong then.
/// What is odd about an archive but no error (no end-of-archive block, as where a tar has been cut between two members)
/// is said in the log, with the object: once for each of the first five, then as a number when the stage ends;
/// not with `.members = {.report = false}`.
template <class = void>
auto untar(tar::archive_options options = {}) {
  return [options](async_generator<chunk> in) {
    auto open = [options, pool = slab_pool(MiB)](const shard& s) {
      tar::archive_options own = options;
      if (s.size) own.members.object_bytes = *s.size;
      return tar::archive_reader(s.shown(), own, pool);
    };
    return stream<member>(detail::untar_chunks(std::move(in), std::move(open), options.members.report)).named("untar");
  };
}

}  // namespace millrace
