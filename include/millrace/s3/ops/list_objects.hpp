// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/url.hpp>
#include <millrace/s3/wire/documents.hpp>

namespace millrace::s3 {

namespace detail {

MILLRACE_COROUTINE task<list_page> list_once(const session& s, const operation& op);

}  // namespace detail

/// The objects whose keys start with the key of `prefix`, in the store's order (keys ascending by bytes), as
/// `s3://bucket/key` with size and ETag. Folder markers (empty objects whose key ends in a slash) are left out.
///
/// ListObjectsV2, page by page as items are requested, so that any key can be listed (encoding-type=url). A page that
/// fails is retried; a listing that is truncated, repeats itself, or has more than `most_empty` pages in a row without
/// a key is an s3::error; no object at all is a configuration_error, as a glob() that matches nothing is.
MILLRACE_COROUTINE async_generator<shard> list_objects(std::shared_ptr<const session> s, url prefix,
                                                       std::uint64_t most_empty = 10000);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/list_objects.ipp>
#endif
