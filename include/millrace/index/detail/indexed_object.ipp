// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/index/detail/indexed_object.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_COROUTINE_BODY task<bytes> indexed_object::read(std::uint64_t at, std::size_t length, bool small) {
  if (rest_ != nullptr) {
    bytes next = co_await rest_->next();
    if (next.empty()) rest_ended_ = true;
    read_ += next.size();
    crc_ = running_crc();
    co_return std::move(next);
  }
  if (total_) length = static_cast<std::size_t>(std::min<std::uint64_t>(length, *total_ - at));
  const coroutine_context here = co_await this_context();
  const std::size_t part = slabs_.slab_bytes();
  if (!requests_) {
    const host_share::bounds one_read{.bytes = 2 * part, .longest = part, .requests = 1};
    requests_.emplace(here, store_, one_read, range_scheduler::limits());
    requests_->consumer_waits(true);
  }
  const bool local = by_ == range_reader::by::read && store_->is_local(object_, at, length);
  // A reader may always have one.
  range_scheduler::turn turn = requests_->begin(requests_->share_of(object_.url), local, length);
  const range_reader::by function = small ? range_reader::by::read_small : by_;
  storage::part p = co_await requests_->reader().read(object_, at, length, slabs_, function);
  const bool whole = at == 0 && p.total == p.data.size();
  if (whole || p.data.size() >= std::min<std::size_t>(part, MiB)) turn.finished(p, whole);  // not headers
  turn.end();
  if (p.total) total_ = p.total;
  crc_ = p.crc;
  short_ = p.data.size() < length;
  rest_ = std::move(p.rest);
  read_ = at + p.data.size();
  co_return std::move(p.data);
}

/// `small`: see indexed_object::read().
MILLRACE_COROUTINE task<std::string> text_by_parts(std::shared_ptr<const storage> from, shard object, std::size_t part,
                                                   bool small, bool again) {
  indexed_object source(std::move(from), std::move(object), part, again);
  std::string text;
  while (!source.ended(text.size())) {
    const bytes more = co_await source.read(text.size(), part, small && text.empty());
    text += more.view();
  }
  co_return std::move(text);
}

MILLRACE_COROUTINE_BODY task<std::string> text_of_object(std::shared_ptr<const storage> from, shard object, bool again,
                                                         std::size_t part) {
  return text_by_parts(std::move(from), std::move(object), part, false, again);
}

MILLRACE_COROUTINE_BODY task<std::string> text_of_range(std::shared_ptr<const storage> from, shard object,
                                                        std::uint64_t at, std::size_t length, bool again) {
  const where here{object.shown(), at, {}};
  indexed_object source(std::move(from), std::move(object), range_reader::slab_for(length), again);
  const bytes data = co_await source.read(at, length);
  if (source.sequential()) throw configuration_error("the store serves no ranges of the object", here);
  if (data.size() != length) throw range_reader::short_read(data.size(), length, here);
  co_return std::string(data.view());
}

MILLRACE_COROUTINE_BODY task<std::string> text_read_twice(std::shared_ptr<const storage> from, shard object) {
  const where at{object.shown(), std::nullopt, {}};
  const bool twice = from->over_network(object.url);
  std::string text = co_await text_of_object(from, object);
  if (twice) {
    const std::string again = co_await text_of_object(std::move(from), std::move(object), true);
    if (again != text) throw archive_error(read_twice(false), at);
  }
  co_return std::move(text);
}

MILLRACE_COROUTINE_BODY task<std::optional<std::string>> text_if_there(std::shared_ptr<const storage> from,
                                                                       shard object, std::size_t part, bool again) {
  std::optional<std::string> text;
  try {
    text = co_await text_by_parts(std::move(from), std::move(object), part, !again, again);
  } catch (const error&) {
    if (!is_not_there(std::current_exception())) throw;
  }
  co_return std::move(text);
}

}  // namespace millrace::detail
