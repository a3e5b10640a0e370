// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/ops/object_checksum.hpp>
#include <millrace/s3/session.hpp>
#include <millrace/s3/wire/detail/body_checksum.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE object_checksum::object_checksum(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                 std::string etag, detail::body_checksum sum)
    : session_(std::move(s)),
      bucket_(std::move(bucket)),
      key_(std::move(key)),
      etag_(std::move(etag)),
      sum_(new detail::body_checksum(std::move(sum))) {}

MILLRACE_INLINE object_checksum::object_checksum(const object_checksum& other)
    : session_(other.session_),
      bucket_(other.bucket_),
      key_(other.key_),
      etag_(other.etag_),
      sum_(new detail::body_checksum(*other.sum_)) {}

MILLRACE_INLINE object_checksum::~object_checksum() = default;

MILLRACE_INLINE void object_checksum::add(const bytes& data, const running_crc& crc) { sum_->add(data.view(), crc); }

MILLRACE_COROUTINE_BODY task<void> object_checksum::compare(std::uint64_t delivered) {
  const bool matches = sum_->matches();
  if (sum_->misnamed()) detail::note_misnamed(co_await this_executor(), *session_, bucket_);
  if (matches) co_return;
  if (sum_->parts() > 0) {
    const bool alike = co_await detail::parts_alike(*session_, *sum_, bucket_, key_, etag_);
    if (!alike) co_return;  // it is of parts with other ends
  }
  std::string reason = "the bytes do not have the " + std::string(sum_->name()) + " of the object";
  if (delivered > 0) reason += "; " + std::to_string(delivered) + " of them were delivered before this was known";
  throw checksum_error(std::move(reason), where{"s3://" + bucket_ + "/" + key_, std::nullopt, std::string()},
                       delivered);
}

}  // namespace millrace::s3
