// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/s3/ops/objects.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/url.hpp>
#include <millrace/s3/wire/documents.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

namespace detail {

MILLRACE_COROUTINE task<list_page> list_once(const session& s, const operation& op);

/// A string `s` with last < s < until, after which a range of keys may be listed by itself, as near to the middle of
/// the rest of the range as the keys of its latest page tell, from `first` to `last`: digits, and letters beside them,
/// are taken for a number. Without `until`: the end of the numbers that change within the page, or, if `wide`, of the
/// letters and digits. nullopt if nothing tells, or if about one page is left. Starts with `prefix`, as they do.
std::optional<std::string> split_point(std::string_view prefix, std::string_view first, std::string_view last,
                                       const std::optional<std::string>& until, bool wide);

}  // namespace detail

/// The objects whose keys start with the key of `prefix`, in the store's order (keys ascending by bytes), as
/// `s3://bucket/key` with size and ETag. Folder markers (empty objects whose key ends in a slash) are left out.
///
/// ListObjectsV2, so that any key can be listed (encoding-type=url). A page that fails is retried; a listing that is
/// truncated, repeats itself, or has more than `most_empty` pages in a row without a key is an s3::error; no object at
/// all is a configuration_error, as a glob() that matches nothing is. A key that comes twice is given once, and
/// rolled-up prefixes, which were not asked for, are left out; one log line reports each of these.
///
/// The first page comes when the first item is requested, and more when that does not suffice. From then on up to
/// list_options::ranges ranges of the keys are listed side by side (start-after), up to 64,000 keys ahead of the
/// consumer. They are joined if the page that ends a range shows the keys that the next one begins with. If it does
/// not, the rest is listed page after page; if keys do not ascend in a range that start-after began, all keys after the
/// first range are listed again, page after page. One log line reports that. A store whose order is not that of bytes
/// may still hide keys from ranges: list_options::ranges is 1 for such a store.
///
/// Directory buckets list in no order, know no start-after, and take prefixes that end in a slash alone: of one, the
/// folder of `prefix` is listed to its end, page after page; the keys that start with the prefix are kept, and given in
/// the order of their bytes.
///
/// In flight: one request for each range, beside the reads of others from the store; listings are not counted in a
/// host's number of reads. 8 bytes of memory stay for each key. Dropping the generator ends its requests at once.
/// Throws configuration_error for 0 ranges.
MILLRACE_COROUTINE async_generator<shard> list_objects(std::shared_ptr<const session> s, url prefix,
                                                       list_options options = {}, std::uint64_t most_empty = 10000);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/list_objects.ipp>
#endif
