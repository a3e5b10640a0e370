// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/retry/retry_class.hpp>
#include <millrace/s3/ops/detail/part_download.hpp>
#include <millrace/s3/ops/detail/prefix_gates.hpp>
#include <millrace/s3/ops/detail/upload_parts.hpp>
#include <millrace/s3/wire/checksum_error.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE part_download::part_download(const session& s, operation op, std::uint64_t offset, std::size_t length,
                                             bool whole, std::string if_match, slab_pool slabs)
    : session_(s),
      op_(std::move(op)),
      offset_(offset),
      length_(length),
      whole_(whole),
      if_match_(std::move(if_match)),
      slabs_(std::move(slabs)) {}

MILLRACE_COROUTINE_BODY task<object_part> part_download::attempt::operator()() const { return download_->once(); }

MILLRACE_COROUTINE_BODY task<object_part> part_download::once() {
  executor& ex = co_await this_executor();
  prefix_gate& gate = gate_of(ex, session_.base().endpoint_url, op_.bucket, op_.key);
  prefix_gate::pass pass = co_await gate.enter();
  const std::size_t before = partial_.filled;
  prepare();
  std::exception_ptr why;
  bool sound = true;  // what has come so far may be kept
  try {
    http::body_options body = memory();
    http::exchange x = co_await send(session_, op_, std::move(body));
    sound = false;
    judge(co_await x.head());
    sound = true;
    object_part result;
    result.object = *seen_;
    result.data = co_await x.read();
    bytes more;
    if (!result.data.empty()) more = co_await x.read();  // empty: the verified end
    check_length(result.data.size() + more.size());
    result.crc = partial_.crc;
    if (declared_) co_await compare(result);
    pass.succeeded();
    co_return result;
  } catch (const error& e) {
    why = std::current_exception();
    if (classify(e.status(), e.code()) == retry_class::throttling) pass.refused();
  } catch (const http::error& e) {
    why = std::current_exception();
    if (e.kind() != http::failure::broken && e.kind() != http::failure::timeout && partial_.filled != before) {
      sound = false;
    }
  } catch (...) {
    why = std::current_exception();
  }
  // The exchange is gone; what it had received lies in partial_.
  if (!sound || !may_resume()) forget();
  progressed_ = partial_.filled > before && partial_.filled - before >= std::max(64 * KiB, length_ / 16);
  std::rethrow_exception(why);
}

MILLRACE_COROUTINE_BODY task<void> part_download::compare(const object_part& p) {
  if (declared_->parts() > 0) {
    const bool found = co_await find_parts(session_, *declared_, op_.bucket, op_.key, p.object.etag, p.object.size);
    if (!found) co_return;
  }
  declared_->add(p.data.view(), p.crc);
  if (declared_->matches()) co_return;
  if (declared_->parts() > 0) {
    const bool alike = co_await parts_alike(session_, *declared_, op_.bucket, op_.key, p.object.etag);
    if (!alike) co_return;
  }
  throw checksum_error("the bytes do not have the " + std::string(declared_->name()) + " of the object",
                       where{op_.at().object, std::nullopt, std::string()});
}

MILLRACE_INLINE void part_download::prepare() {
  resumed_ = partial_.filled > 0;
  if (!resumed_) partial_.crc = running_crc(crc_kind::none);
  if (!resumed_ && session_.base().validate_checksums) partial_.crc = running_crc(session_.expected_crc());
  progressed_ = false;
  op_.fields = http::headers();
  const std::string& etag = version();
  // Only strong validators may be used with If-Match (RFC 9110, 13.1.1).
  if (!etag.empty() && etag.compare(0, 2, "W/") != 0) op_.fields.add("if-match", etag);
  op_.range = http::byte_range{offset_ + partial_.filled, offset_ + length_ - 1};
  if (whole_ && !resumed_) {
    // Stores send checksums with whole objects only (and with ranges some that are of something else).
    op_.range.reset();
    op_.fields.add("x-amz-checksum-mode", "ENABLED");
  }
}

MILLRACE_INLINE http::body_options part_download::memory() {
  http::body_options body;
  if (length_ > slabs_.slab_bytes() / 8) {
    body.pool = slabs_;
  } else {
    body.heap_chunk = length_ == 0 ? 1 : length_;  // a whole slab would be mostly empty
  }
  body.window = slabs_.slab_bytes();
  body.resume = &partial_;
  return body;
}

MILLRACE_INLINE void part_download::judge(const http::response_head& head) {
  object_info now;
  now.etag = head.etag();
  if (op_.range) {
    if (!head.range || !head.range->total) {
      throw http::error(http::failure::protocol, "the store does not tell the size of the object", op_.at(),
                        head.status);
    }
    now.size = *head.range->total;
  } else {
    now.size = head.length ? *head.length : length_;
  }
  if (now.etag.empty() && (offset_ > 0 || now.size > length_ || resumed_ || (whole_ && !if_match_.empty()))) {
    throw http::error(http::failure::protocol,
                      "the store sent no ETag: parts of an object could not be told to be of one version", op_.at(),
                      head.status);
  }
  const std::string& before = version();
  if (!before.empty() && !now.etag.empty() && now.etag != before) throw changed(before, now.etag, op_.at());
  const std::uint64_t size_before = seen_ ? seen_->size : whole_ ? length_ : now.size;
  if (now.size != size_before && now.etag.empty()) {
    throw http::error(http::failure::protocol, "the answer is not the object: another length, and no ETag", op_.at(),
                      head.status);
  }
  if (now.size != size_before) {
    throw changed_error("the object changed while it was read: " + std::to_string(size_before) + " bytes became " +
                            std::to_string(now.size),
                        op_.at());
  }
  if (!op_.range) {
    declared_ = body_checksum::of(head.fields);
    partial_.crc = running_crc(declared_ ? declared_->crc() : crc_kind::none);  // no byte has come yet
    session_.expect_crc(partial_.crc.kind());
  }
  if (!seen_) seen_ = std::move(now);
}

MILLRACE_INLINE void part_download::check_length(std::size_t got) const {
  const std::uint64_t due = std::min<std::uint64_t>(length_, seen_->size - std::min(seen_->size, offset_));
  if (got == due) return;
  throw http::error(http::failure::protocol,
                    "the answer has " + std::to_string(got) + " bytes instead of " + std::to_string(due), op_.at());
}

MILLRACE_INLINE void part_download::forget() noexcept {
  partial_.memory = writable_bytes();
  partial_.filled = 0;
  seen_.reset();
  declared_.reset();
}

}  // namespace millrace::s3::detail
