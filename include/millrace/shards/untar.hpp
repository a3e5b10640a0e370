// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/chunk.hpp>
#include <millrace/shards/detail/unpack_objects.hpp>
#include <millrace/shards/member.hpp>
#include <millrace/shards/unpack_options.hpp>
#include <millrace/tar/archive_options.hpp>

namespace millrace {

namespace detail {

MILLRACE_COROUTINE async_generator<member> untar_members(async_generator<chunk> in, tar::archive_options options,
                                                         unpack_place unpack);

}  // namespace detail

/// Stage: chunks -> members. Untars one object after the other as its pieces arrive. A plain tar is walked without
/// copying: bodies are slices of the fetched slabs, except the few that straddle two. Compressed tars (gzip, bzip2, xz,
/// zstd, lz4), zip and cpio are recognised by their first bytes and unpacked by libarchive: compressed tars on a pool,
/// several objects side by side (see unpack_options; a core makes 0.4 GB/s of gzip), zip and cpio on the loop's thread.
/// Members keep the order of the objects.
///
/// Bound: of plain tars, what is walked; from the first compressed object on `unpack.bytes` of pieces that wait
/// (declared only where it is stated: see there), and for each object that is unpacked 4 MiB and a piece of its input.
///
/// Directories, links and devices are passed over. A broken or cut archive is an archive_error with object and byte
/// offset, after every member that came before it whole, whose number it says, as does an error of fetching; so is an
/// object of no bytes, unless options.members.allow_empty. Damage inside compressed data may show only at their
/// checksum, which stands behind them (of gzip at the end of the object): what came before the error may be wrong then.
/// What is odd about an archive but no error (no end-of-archive block, as where a tar has been cut between two members)
/// is said in the log, with the object: once for each of the first five, then as a number when the stage ends;
/// not with `.members = {.report = false}`.
MILLRACE_COROUTINE inline auto untar(tar::archive_options options = {}, unpack_options unpack = {}) {
  return [options, place = detail::unpack_place(unpack)](async_generator<chunk> in) {
    return place.bound(stream<member>(detail::untar_members(std::move(in), options, place)).named("untar"),
                       "untar, unpacked");
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/untar.ipp>
#endif
