// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/shards/unpack.hpp>
#include <millrace/tar/entry.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

MILLRACE_COROUTINE async_generator<member> untar_members(async_generator<chunk> in, tar::archive_options options,
                                                         unpack_place unpack);

}  // namespace detail

/// Stage: chunks -> members. Untars one object after the other as its pieces arrive. A plain tar is walked without
/// copying: bodies are slices of the fetched slabs, except the few that straddle two. Compressed tars (gzip, bzip2, xz,
/// zstd, lz4), zip and cpio are recognised by their first bytes and unpacked by libarchive: compressed tars on a pool,
/// several objects side by side (see unpack_options; a core makes 0.4 GB/s of gzip), zip and cpio on the loop's thread.
/// Members keep the order of the objects. A Content-Encoding of the store is unpacked like compression of the object's
/// own, one layer in all; `br`, `compress` and others that are not known here are refused by that name.
///
/// Bound: of plain tars, the piece that is walked; from the first compressed object on `unpack.bytes` of pieces that
/// wait (declared only if it is stated: see there), and for each object that is unpacked 4 MiB and a piece of its
/// input.
///
/// A broken header of a plain tar may be a bit that was damaged on the way: the piece is read once more from there,
/// over another connection, and the walk continues; if it is broken again, the error says whether the bytes were the
/// same. The first piece of an object that is no archive is read again, too. Compressed archives, zip and cpio are not
/// read again: their checksums come after data that has been delivered (an object of one part is compared with the
/// store's checksum before it is delivered).
///
/// Directories, links and devices are skipped. A broken or truncated archive is an archive_error with object and byte
/// offset, after every complete member before it, whose number it says, as does an error of fetching; so is an empty
/// object. Damage inside compressed data may be found only at its checksum, which follows the data (for gzip at the end
/// of the object): what was delivered before the error may be wrong then. What is unusual about an archive but no error
/// (no end-of-archive block, as after truncation between two members) is logged, with the object: for each of the first
/// five, then as a number when the stage ends.
MILLRACE_COROUTINE inline auto untar(tar::archive_options options = {}, unpack_options unpack = {}) {
  return [options, place = detail::unpack_place(unpack)](async_generator<chunk> in) {
    return place.bound(stream<member>(detail::untar_members(std::move(in), options, place)).named("untar"),
                       "untar, unpacked");
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/untar.ipp>
#endif
