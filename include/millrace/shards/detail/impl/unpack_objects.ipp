// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/give.hpp>
#include <millrace/shards/detail/unpack_ahead.hpp>
#include <millrace/shards/detail/unpack_objects.hpp>

namespace millrace::detail {

MILLRACE_COROUTINE_BODY async_generator<unpacked_chunk> unpack_objects(async_generator<chunk> in, format_of_head look,
                                                                       std::size_t head_bytes,
                                                                       tar::archive_options limits,
                                                                       unpack_place place) {
  executor& ex = co_await this_executor();
  stage_record* const stage = co_await this_stage();
  unpack_ahead ahead(in, ex, stage, look, head_bytes, limits, place);
  while (!ahead.met_packed()) {
    std::optional<chunk> c = co_await in.next();
    if (!c) co_return;
    ahead.take(std::move(*c));
    c.reset();
    while (ahead.has_output() && !ahead.met_packed()) {
      unpacked_chunk piece = ahead.pop();
      co_yield give(piece);
    }
    if (ahead.ended()) ahead.rethrow();
  }
  ahead.start();
  for (;;) {
    while (!ahead.has_output() && !ahead.ended()) co_await ahead.wait();
    if (!ahead.has_output()) {
      ahead.rethrow();
      co_return;
    }
    unpacked_chunk piece = ahead.pop();
    co_yield give(piece);
  }
}

}  // namespace millrace::detail
