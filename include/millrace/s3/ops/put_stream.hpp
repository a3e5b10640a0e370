// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/s3/ops/detail/cut_parts.hpp>
#include <millrace/s3/ops/detail/open_upload.hpp>
#include <millrace/s3/ops/detail/upload_requests.hpp>
#include <millrace/s3/ops/object_part.hpp>

namespace millrace::s3 {

namespace detail {

/// The chunk that was looked at, then the others; adds up their sizes.
template <class Generator, class Chunk>
async_generator<Chunk> counted(Chunk first, Generator rest, std::uint64_t* total) {
  *total += first.data.size();
  co_yield give(first);
  while (auto next = co_await rest.next()) {
    *total += next->data.size();
    co_yield give(*next);
  }
}

}  // namespace detail

/// Stores what `content`, a stream<bytes>, gives, to its end, as one object: in one request when it fits one
/// part (an empty stream makes an empty object), else as a multipart upload. Gives the size and the ETag. See
/// client::put() for the plan's options.
///
/// Concurrency: `content` is pulled while parts are on their way; at most plan.limit parts, of plan.part bytes each,
/// are held, the one that is being filled among them. Each part is retried by itself; every request is covered by its
/// signature and, unless switched off, carries the CRC-32C of its body.
///
/// The object appears when all of it has been stored, or not at all: when `content` throws, a part fails for good or
/// the task is dropped, the upload is aborted by the loop's root scope (executor::drain() waits for that). Dropped
/// while the last request is on its way, the object may be there or not. An upload is left behind only when the answer
/// to its creation was lost: its id is known to nobody, and stores have a lifecycle rule for these. With only_new, a
/// retry whose first attempt had succeeded is refused as any other: PreconditionFailed.
template <class Content>
task<object_info> put_stream(std::shared_ptr<const session> s, std::string bucket, std::string key, Content content,
                             detail::put_plan plan) {
  executor& ex = co_await this_executor();
  where at;
  at.object = "s3://" + bucket + "/" + key;
  auto chunks = detail::cut_parts(std::move(content), plan.part, plan.size, std::move(at));
  auto first = co_await chunks.next();
  object_info stored;
  if (first->last) {
    stored.size = first->data.size();
    stored.etag = co_await detail::store_whole(s, bucket, key, std::move(first->data), plan);
    co_return stored;
  }
  detail::open_upload<> upload(ex, s, bucket, key, plan);
  const std::string id = co_await upload.id();
  auto store = [&](detail::object_chunk chunk) {
    return detail::store_part(s, bucket, key, id, std::move(chunk), plan.checksums);
  };
  const map_concurrent_options bound{.limit = plan.limit, .bytes = plan.limit * plan.part};
  auto storing = detail::counted(std::move(*first), std::move(chunks), &stored.size) | map_concurrent(store, bound);
  std::vector<detail::stored_part> parts;
  while (auto part = co_await storing.next()) parts.push_back(std::move(*part));
  stored.etag = co_await detail::complete_upload(s, bucket, key, id, std::move(parts), plan.only_new);
  upload.completed();
  co_return stored;
}

}  // namespace millrace::s3
