// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/error.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/s3/ops/read_object.hpp>
#include <millrace/s3/ops/send.hpp>

namespace millrace::s3 {

MILLRACE_COROUTINE_BODY task<bytes> read_object(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                std::size_t max_bytes) {
  const object_info info = co_await head_object(s, bucket, key);
  if (info.size > max_bytes) {
    const operation op("GET", std::move(bucket), std::move(key));
    throw http::error(
        http::failure::too_large,
        "the object's " + std::to_string(info.size) + " bytes are more than the limit of " + std::to_string(max_bytes),
        op.at());
  }
  if (info.size == 0) co_return bytes();
  const auto length = static_cast<std::size_t>(info.size);
  object_part all = co_await get_object_range(s, std::move(bucket), std::move(key), 0, length, info.etag,
                                              slab_pool(length), std::optional<std::uint64_t>(info.size));
  co_return std::move(all.data);
}

}  // namespace millrace::s3
