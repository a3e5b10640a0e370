// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/http/error.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/ops/read_object.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// A slab that is part of other memory. It is lent once at a time: an answer that goes on after it has no place.
class placed_slab final : public slab_source {
 public:
  explicit placed_slab(char* at) noexcept : at_(at) {}
  MILLRACE_INLINE void* allocate(std::size_t size) override {
    if (std::exchange(lent_, true)) {
      throw http::error(http::failure::protocol,
                        "the answer is longer than the " + std::to_string(size) + " bytes that were asked for",
                        where());
    }
    return at_;
  }
  void free(void*, std::size_t) noexcept override {}

 private:
  char* const at_;
  bool lent_ = false;
};

MILLRACE_COROUTINE_BODY object_reader::object_reader(std::shared_ptr<const session> s, std::string bucket,
                                                     std::string key, const coroutine_context& here,
                                                     std::atomic<std::uint64_t>* progress)
    : session_(std::move(s)),
      bucket_(std::move(bucket)),
      key_(std::move(key)),
      here_(here),
      progress_(progress),
      share_(here_, host_name(session_->base(), bucket_), {.longest = longest_part, .requests = 64}) {}

MILLRACE_COROUTINE_BODY task<bytes> object_reader::read(std::size_t max_bytes) {
  limit_ = max_bytes;
  co_await read_all();
  if (made_) co_return made_.share(0, static_cast<std::size_t>(object_.size));
  co_return small_.compact();
}

MILLRACE_COROUTINE_BODY task<std::size_t> object_reader::read_into(std::span<std::byte> memory) {
  own_ = false;
  limit_ = memory.size();
  memory_ = reinterpret_cast<char*>(memory.data());
  co_await read_all();
  co_return static_cast<std::size_t>(object_.size);
}

MILLRACE_COROUTINE_BODY task<void> object_reader::read_all() {
  std::optional<std::uint32_t> came;  // the CRC-32C of the damaged object
  for (;;) {
    try {
      co_await read_once();
      co_return;
    } catch (checksum_error& e) {
      const char* const data = own_ && !made_ ? small_.data() : memory_;
      const std::uint32_t now = crc32c(0, data, static_cast<std::size_t>(object_.size));
      if (came) {
        e.add_note(millrace::detail::read_twice(*came == now));
        throw;
      }
      came = now;
      again_ = true;
    }
  }
}

MILLRACE_COROUTINE_BODY task<void> object_reader::read_once() {
  parts_.clear();
  failed_ = false;
  checksum_.reset();
  if (progress_ != nullptr) progress_->store(0, std::memory_order_relaxed);
  next_ = UINT64_MAX;  // until the first part has said how long the object is
  // If there is no room at all, the object may still be empty.
  const std::size_t length = std::max<std::size_t>(1, std::min(limit_, first_part));
  const bool placed = memory_ != nullptr && limit_ > 0;
  small_ = bytes();
  slab_pool slabs = placed ? slab_pool(length, std::make_shared<placed_slab>(memory_)) : slab_pool(length);
  if (session_->base().validate_checksums) {
    asking_ = spawned<std::unique_ptr<object_checksum>>(here_, checksum_of(session_, bucket_, key_, object_.etag));
  }
  object_part first = co_await read_part(0, length, std::move(slabs), share_.begin());
  make_room(first);
  next_ = first.data.size();
  begin_parts();
  if (asking_) co_await take_checksum();
  if (checksum_) checksum_->add(first.data, first.crc);
  small_ = own_ && !made_ ? std::move(first.data) : bytes();
  while (!parts_.empty()) {
    const object_part p = co_await parts_.front();
    parts_.pop_front();
    begin_parts();
    if (checksum_) checksum_->add(p.data, p.crc);
  }
  if (checksum_) co_await checksum_->compare(0);
}

MILLRACE_INLINE void object_reader::make_room(const object_part& first) {
  object_ = first.object;
  const std::string what = "the object's " + std::to_string(object_.size) + " bytes are more than the ";
  const where at{"s3://" + bucket_ + "/" + key_, std::nullopt, std::string()};
  if (object_.size > limit_) {
    throw http::error(http::failure::too_large,
                      what + (own_ ? "limit of " + std::to_string(limit_)
                                   : std::to_string(limit_) + " of the memory that they are to go to"),
                      at);
  }
  if (!own_ || object_.size == first.data.size()) return;
  const auto size = static_cast<std::size_t>(object_.size);
  if (!made_ || made_.capacity() < size) made_ = slab_pool(size).acquire();
  memory_ = made_.data();
  // The second reading puts it there itself.
  if (first.data.data() != memory_) std::memcpy(memory_, first.data.data(), first.data.size());
}

MILLRACE_COROUTINE_BODY task<void> object_reader::take_checksum() {
  checksum_ = co_await asking_;
  asking_ = spawned<std::unique_ptr<object_checksum>>();
  if (checksum_ && !checksum_->etag().empty() && !object_.etag.empty() &&
      !millrace::detail::same_etag(checksum_->etag(), object_.etag)) {
    throw millrace::detail::version_changed(object_.etag, checksum_->etag(),
                                            where{"s3://" + bucket_ + "/" + key_, std::nullopt, std::string()});
  }
}

MILLRACE_COROUTINE_BODY void object_reader::begin_parts() {
  while (next_ < object_.size && parts_.size() < most_parts && !failed_) {
    if (!share_.may_begin(true) && share_.in_flight() > 0) return;
    const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(object_.size - next_, share_.part()));
    slab_pool place(length, std::make_shared<placed_slab>(memory_ + next_));
    parts_.emplace_back(here_, read_part(next_, length, std::move(place), share_.begin()));
    next_ += length;
  }
}

MILLRACE_COROUTINE_BODY task<object_part> object_reader::read_part(std::uint64_t offset, std::size_t length,
                                                                   slab_pool slabs,
                                                                   millrace::detail::host_share::request request) {
  const time_point asked = here_.get_executor().now();
  object_part p;
  {
    millrace::detail::host_share::request until_answered = std::move(request);
    try {
      p = co_await get_object_range(session_, bucket_, key_, offset, length, object_.etag, std::move(slabs),
                                    {.new_connection = again_});
    } catch (...) {
      failed_ = true;
      throw;
    }
    const time_point now = here_.get_executor().now();
    until_answered.finished(now, {.bytes = p.data.size(),
                                  .first = p.first_byte,
                                  .total = now - asked,
                                  .held = p.held,
                                  .whole = offset == 0,  // its length is not the controller's
                                  .waits = true});
  }
  if (progress_ != nullptr) progress_->fetch_add(p.data.size(), std::memory_order_relaxed);
  if (next_ != UINT64_MAX) begin_parts();
  co_return p;
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_COROUTINE_BODY task<bytes> read_object(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                std::size_t max_bytes, std::atomic<std::uint64_t>* progress) {
  const coroutine_context here = co_await this_context();
  detail::object_reader reader(std::move(s), std::move(bucket), std::move(key), here, progress);
  bytes all = co_await reader.read(max_bytes);
  co_return all;
}

MILLRACE_COROUTINE_BODY task<std::size_t> read_object_into(std::shared_ptr<const session> s, std::string bucket,
                                                           std::string key, std::span<std::byte> memory,
                                                           std::atomic<std::uint64_t>* progress) {
  const coroutine_context here = co_await this_context();
  detail::object_reader reader(std::move(s), std::move(bucket), std::move(key), here, progress);
  const std::size_t size = co_await reader.read_into(memory);
  co_return size;
}

}  // namespace millrace::s3
