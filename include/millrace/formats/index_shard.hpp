// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

struct index_shard_options {
  /// Bytes of one request; at least 64 KiB. epochs() reads up to 16 shards at a time.
  std::size_t part = 4 * MiB;
  /// Make it of verified bytes: see index_shard().
  bool verify = true;
  /// Say in the log what is odd about a shard but no error, as untar() does.
  bool report = true;
};

/// Makes the index of a shard that lies in a store, which calls it `name`, by its format's scanner, or by its index()
/// if it has none. `format`: null is tar_shards(). `metadata`: the result of its metadata(). The object must stay the
/// version that was read first, and be that of `object`'s ETag and size if these are known.
///
/// Bytes that have come over a network (storage::over_network()) may have been damaged there, and an index of damaged
/// bytes would refuse the right ones for ever. So the index is of verified bytes: if all of the shard is read and the
/// store keeps a checksum of it, that is compared, which costs a HEAD, or two. If there is none, and if only headers
/// are read, the shard is read a second time, over another connection, and both indexes must be the same: twice the
/// bytes, once in the life of a data set. If two readings do not agree a third one decides. With .verify = false it is
/// read once. A shard whose own checksums cover every byte is read once, too.
///
/// Bounds: one request at a time, the memory of a part and of a member that straddles two, and three indexes. Dropping
/// the task ends the transfer. A store that does not serve ranges is read as a stream.
///
/// Errors: those of the store and of the format; s3::checksum_error, when it was read twice, and they say whether it
/// was the same; changed_error where the size is not the one that was listed.
MILLRACE_COROUTINE task<shard_index> index_shard(std::shared_ptr<const storage> from, shard object, std::string name,
                                                 std::shared_ptr<const shard_format> format = nullptr,
                                                 index_shard_options options = {},
                                                 std::shared_ptr<const void> metadata = nullptr);

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/index_shard.ipp>
#endif
