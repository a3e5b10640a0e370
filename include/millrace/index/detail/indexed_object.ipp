// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/index/detail/indexed_object.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_COROUTINE_BODY task<bytes> indexed_object::read(std::uint64_t at, std::size_t length) {
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
  if (share_ == nullptr) {
    const host_share::bounds one_read{.bytes = 2 * part, .longest = part, .requests = 1};
    share_ = std::make_unique<host_share>(here, reader_.store().host(object_.url), one_read);
  }
  const bool local = by_ == range_reader::by::read && reader_.store().is_local(object_, at, length);
  host_share::request request = local ? share_->begin_local() : share_->begin();  // a reader may always have one
  const time_point asked = here.get_executor().now();
  storage::part p = co_await reader_.read(object_, at, length, slabs_, by_);
  const time_point now = here.get_executor().now();
  const bool whole = at == 0 && p.total == p.data.size();
  if (whole || p.data.size() >= std::min<std::size_t>(part, MiB)) {  // not headers
    request.finished(now, {.bytes = p.data.size(), .first = p.first_byte, .total = now - asked, .held = p.held,
                           .whole = whole, .waits = true});
  }
  request.end();
  if (p.total) total_ = p.total;
  crc_ = p.crc;
  short_ = p.data.size() < length;
  rest_ = std::move(p.rest);
  read_ = at + p.data.size();
  co_return std::move(p.data);
}

}  // namespace millrace::detail
