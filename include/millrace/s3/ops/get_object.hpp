// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/s3/ops/object_part.hpp>
#include <millrace/s3/session.hpp>
#include <millrace/s3/wire/checksum_error.hpp>

namespace millrace::s3 {

/// Bytes [offset, offset + length) of an object, in one slab of `slabs` (length is at most a slab) or, for small
/// lengths, in memory of their own size; fewer where the object ends, none for an empty object.
///
/// With `if_match` the object must still have that ETag. Transient failures are retried; a body that breaks off goes on
/// at the next byte, in the same memory, if the store still has that version. changed_error, with both ETags, when it
/// has not. With `size`, the size of the object, an object of one part is asked for as a whole and compared with the
/// checksum that the store keeps of it (config::validate_checksums): checksum_error. Parts of an object whose store
/// sends no ETag are refused. Dropping the task ends the transfer.
MILLRACE_COROUTINE task<object_part> get_object_range(std::shared_ptr<const session> s, std::string bucket,
                                                      std::string key, std::uint64_t offset, std::size_t length,
                                                      std::string if_match, slab_pool slabs,
                                                      std::optional<std::uint64_t> size = std::nullopt);

/// Size and ETag of an object.
MILLRACE_COROUTINE task<object_info> head_object(std::shared_ptr<const session> s, std::string bucket, std::string key);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/impl/get_object.ipp>
#endif
