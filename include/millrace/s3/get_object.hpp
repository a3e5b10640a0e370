// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/slab_pool.hpp>
#include <millrace/s3/send.hpp>
#include <millrace/s3/with_retries.hpp>

namespace millrace::s3 {

/// What HeadObject tells, and what comes with the bytes of GetObject.
class object_info {
 public:
  std::uint64_t size = 0;  ///< of the whole object
  std::string etag;        ///< quotes included; empty when the store sends none
};

/// Bytes of an object, with the version they belong to.
class object_part {
 public:
  bytes data;
  object_info object;
};

namespace detail {

inline task<bytes> read_into_slab(http::exchange& x, std::size_t capacity) {
  bytes data = co_await x.read();
  if (data.empty()) co_return data;
  const bytes more = co_await x.read();  // the verified end, unless the answer is longer than a slab
  if (!more.empty()) {
    throw http::error(http::failure::too_large,
                      "the answer is longer than a slab of " + std::to_string(capacity) + " bytes",
                      where{http::displayed(x.asked().url), std::nullopt, std::string()});
  }
  co_return data;
}

inline http::body_options memory_for(std::size_t length, const slab_pool& slabs) {
  http::body_options body;
  if (length > slabs.slab_bytes() / 8) {
    body.pool = slabs;
  } else {
    body.heap_chunk = length == 0 ? 1 : length;  // a whole slab would be mostly empty
  }
  body.window = slabs.slab_bytes();
  return body;
}

inline task<object_part> get_range_once(const session& s, const operation& op, const slab_pool& slabs) {
  const auto length = static_cast<std::size_t>(op.range->size());
  http::body_options body = memory_for(length, slabs);
  http::exchange x = co_await send(s, op, std::move(body));
  const http::response_head& head = co_await x.head();
  object_part result;
  result.object.etag = head.etag();
  if (!head.range || !head.range->total) {
    throw http::error(http::failure::protocol, "the store does not tell the size of the object", op.at(), head.status);
  }
  result.object.size = *head.range->total;
  result.data = co_await read_into_slab(x, slabs.slab_bytes());
  co_return result;
}

inline task<object_part> get_whole_once(const session& s, const operation& op, const slab_pool& slabs) {
  http::body_options body = memory_for(slabs.slab_bytes(), slabs);
  http::exchange x = co_await send(s, op, std::move(body));
  const http::response_head& head = co_await x.head();
  object_part result;
  result.object.etag = head.etag();
  result.data = co_await read_into_slab(x, slabs.slab_bytes());
  result.object.size = result.data.size();
  co_return result;
}

}  // namespace detail

/// Bytes [offset, offset + length) of an object, in one slab of `slabs` (length is at most a slab) or, for small
/// lengths, in memory of their own size; fewer where the object ends, none for an empty object. With `if_match` the
/// object must still have that ETag, else s3::error 412. Transient failures are retried from the start of the part.
inline task<object_part> get_object_range(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                          std::uint64_t offset, std::size_t length, std::string if_match,
                                          slab_pool slabs) {
  operation op("GET", std::move(bucket), std::move(key));
  op.range = http::byte_range{offset, offset + length - 1};
  if (!if_match.empty()) op.fields.add("if-match", std::move(if_match));
  bool empty_object = false;
  try {
    auto attempt = [&] { return detail::get_range_once(*s, op, slabs); };
    co_return co_await with_retries<object_part>(*s, attempt);
  } catch (const error& e) {
    // No range of an empty object can be satisfied (RFC 9110, 14.1.2): ask for it as a whole.
    if (e.status() != 416 || offset != 0) throw;
    empty_object = true;
  }
  if (empty_object) op.range.reset();
  auto attempt = [&] { return detail::get_whole_once(*s, op, slabs); };
  object_part whole = co_await with_retries<object_part>(*s, attempt);
  if (!whole.data.empty()) {
    throw error(416, "InvalidRange", "the store refused a range of an object that is not empty", std::string(),
                op.at());
  }
  co_return whole;
}

/// Size and ETag of an object.
inline task<object_info> head_object(std::shared_ptr<const session> s, std::string bucket, std::string key) {
  const operation op("HEAD", std::move(bucket), std::move(key));
  struct once {
    static task<object_info> run(const session& s, const operation& op) {
      http::body_options none;
      http::exchange x = co_await send(s, op, std::move(none));
      const http::response_head& head = co_await x.head();
      if (!head.length) {
        throw http::error(http::failure::protocol, "the store does not tell the size of the object", op.at(),
                          head.status);
      }
      object_info info;
      info.size = *head.length;
      info.etag = head.etag();
      co_return info;
    }
  };
  auto attempt = [&] { return once::run(*s, op); };
  co_return co_await with_retries<object_info>(*s, attempt);
}

}  // namespace millrace::s3
