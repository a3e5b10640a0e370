// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/chunk.hpp>
#include <millrace/shards/member.hpp>
#include <millrace/tar/archive_options.hpp>

namespace millrace {

namespace detail {

MILLRACE_COROUTINE async_generator<member> untar_members(async_generator<chunk> in, tar::archive_options options);

}  // namespace detail

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
MILLRACE_COROUTINE inline auto untar(tar::archive_options options = {}) {
  return [options](async_generator<chunk> in) {
    return stream<member>(detail::untar_members(std::move(in), options)).named("untar");
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/untar.ipp>
#endif
