// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/shards/chunk.hpp>
#include <millrace/shards/detail/unpacked_chunk.hpp>
#include <millrace/tar/archive_options.hpp>

namespace millrace::detail {

/// The stage before untar() and lines() look at objects: unpacks those that are compressed, on a pool, side by side and
/// in order. `head_bytes`: how much of its beginning `look` wants to see of an object that has as much. Until an object
/// is compressed nothing is read ahead and pieces go on as they came. Errors of an object come behind what was unpacked
/// before: archive_error. Dropping it drops what waits; a job that a thread has begun runs to its end, of 4 MiB.
MILLRACE_COROUTINE async_generator<unpacked_chunk> unpack_objects(async_generator<chunk> in, format_of_head look,
                                                                  std::size_t head_bytes, tar::archive_options limits,
                                                                  unpack_place place);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/detail/impl/unpack_objects.ipp>
#endif
