// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/runtime_counts.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/io/run_on.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/shards/range_reader.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The runtime's loop that a range is read on; null for this one. A sequential rest lives on the loop that began it.
MILLRACE_INLINE executor* other_loop(const coroutine_context& here, const storage& store) noexcept {
  if (store.may_be_sequential()) return nullptr;
  executor& next = here.runtime().next_loop();
  return &next == &here.get_executor() ? nullptr : &next;
}

MILLRACE_COROUTINE_BODY task<storage::part> range_reader::read(shard& object, std::uint64_t offset, std::size_t length,
                                                               std::optional<slab_pool> slabs, by function) {
  const coroutine_context here = co_await this_context();
  if (!slabs) {
    slabs = pool_of(here.runtime(), slab_for(length)).uncompared();
    if (summed_) slabs = slabs->summed();
  }
  auto ask = [store = store_, asked = object, offset, length, slabs = std::move(*slabs), function]() mutable {
    std::string version = asked.etag;
    if (function == by::read_again) {
      return store->read_again(std::move(asked), std::move(version), offset, length, std::move(slabs));
    }
    return read_or_small(*store, function == by::read_small, std::move(asked), std::move(version), offset, length,
                         std::move(slabs));
  };
  const std::int64_t asked = here.get_executor().now_ns();
  storage::part p;
  executor* const other = other_loop(here, *store_);
  if (other != nullptr) {
    p = co_await run_on(*other, std::move(ask));
  } else {
    p = co_await ask();
  }
  if (runtime_counts* const counts = here.runtime().counts()) {
    counts->part.add(here.get_executor().now_ns() - asked);
  }
  if (tracer* const trace = here.runtime().trace()) {
    trace->add({.begin = asked,
                .end = here.get_executor().now_ns(),
                .name = "part",
                .lane = trace_lane::part,
                .bytes = static_cast<std::int64_t>(p.data.size())});
  }
  stage_record::add(here.stage(), &stage_record::read, static_cast<std::int64_t>(p.data.size()));
  if (p.again) log_second_reading(here, object.shown());
  check(object, p, offset, length);
  co_return std::move(p);
}

MILLRACE_INLINE slab_pool range_reader::pool_of(runtime_parts& runtime, std::size_t slab_bytes, std::size_t whole) {
  for (const slab_pool& known : pools_) {
    if (known.slab_bytes() == slab_bytes) return known;
  }
  if (slab_bytes >= whole) return pools_.emplace_back(runtime.slabs(slab_bytes));
  std::size_t twice = whole;
  while (twice / 2 > slab_bytes) twice /= 2;
  const slab_pool longer = pool_of(runtime, twice, whole);
  return pools_.emplace_back(longer.halves());
}

MILLRACE_INLINE io_error range_reader::short_read(std::uint64_t came, std::uint64_t due, where at) {
  return io_error("read " + std::to_string(came) + " bytes instead of " + std::to_string(due), std::move(at));
}

MILLRACE_INLINE void range_reader::check(shard& object, const storage::part& p, std::uint64_t offset,
                                         std::size_t length) {
  const auto here = [&] { return where{object.shown(), offset, std::string()}; };
  if (object.etag.empty()) {
    object.etag = p.etag;
  } else if (!p.etag.empty() && !millrace::detail::same_etag(p.etag, object.etag)) {
    throw version_changed(object.etag, p.etag, here());
  }
  if (object.encoding.empty()) object.encoding = p.encoding;
  if (p.rest) return;
  if (p.total && object.size && *p.total != *object.size) {
    throw changed_error("the object is " + std::to_string(*p.total) + " bytes long, not " +
                            std::to_string(*object.size) + " as listed",
                        here());
  }
  if (p.total) object.size = p.total;
  const std::uint64_t size = object.size.value_or(offset + p.data.size());  // an answer is short where the object ends
  const std::uint64_t due = size <= offset ? 0 : std::min<std::uint64_t>(size - offset, length);
  if (p.data.size() != due) throw short_read(p.data.size(), due, here());
}

MILLRACE_COROUTINE_BODY task<second_reading> range_reader::read_again(shard object, std::vector<byte_stretch> at,
                                                                      std::string why) const {
  second_reading result;
  if (!store_->over_network(object.url)) co_return std::move(result);
  log_second_reading(co_await this_context(), why);
  const std::string etag = object.etag;
  try {
    for (const byte_stretch& each : at) {
      const std::size_t length = each.length();
      slab_pool slabs(slab_for(length));
      storage::part p = co_await store_->read_again(object, etag, each.begin, length, std::move(slabs));
      if (p.rest) {
        result.note = "it cannot be read once more: the store serves no ranges";
      } else if (!etag.empty() && !p.etag.empty() && !millrace::detail::same_etag(p.etag, etag)) {
        result.note = "read once more, it is another version: " + p.etag;
      } else if (p.data.size() != length) {
        result.note = "read once more, there were " + std::to_string(p.data.size()) + " bytes of " +
                      std::to_string(length);
      } else {
        result.parts.push_back(std::move(p.data));
        continue;
      }
      result.parts.clear();
      break;
    }
  } catch (const error& e) {
    result.failed(e);
  }
  co_return std::move(result);
}

MILLRACE_COROUTINE_BODY task<second_reading> chunk_source::read(std::uint64_t begin, bytes first,
                                                                std::string why) const {
  second_reading again;
  if (first.empty()) co_return std::move(again);
  shard object = *object_;
  object.etag = etag_;
  std::vector<byte_stretch> at(1);
  at.front() = {begin, begin + first.size()};
  again = co_await reader_.read_again(std::move(object), std::move(at), std::move(why));
  again.compare(std::span(&first, 1));
  co_return std::move(again);
}

MILLRACE_INLINE bool chunk_source::take_mended(std::uint64_t begin, bytes& piece) {
  bool any = false;
  std::string text;
  for (std::size_t i = 0; i < mended_.size(); ++i) {
    const std::uint64_t at = mended_at_[i];
    const bytes& data = mended_[i];
    const std::uint64_t from = std::max(begin, at);
    const std::uint64_t to = std::min(begin + piece.size(), at + data.size());
    if (from >= to) continue;
    if (!std::exchange(any, true)) text = piece.view();
    text.replace(static_cast<std::size_t>(from - begin), static_cast<std::size_t>(to - from), data.data() + (from - at),
                 static_cast<std::size_t>(to - from));
  }
  mended_at_.clear();
  mended_.clear();
  if (any) piece = bytes::copy(text);
  return any;
}

}  // namespace millrace::detail
