// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/shards/detail/untar_chunks.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace::detail {

MILLRACE_COROUTINE_BODY async_generator<member> untar_plain_members(async_generator<chunk> in,
                                                                    tar::reader_options options) {
  auto open = [options](const chunk& c) {
    const shard& s = *c.from;
    tar::reader_options own = options;
    if (s.size) own.object_bytes = *s.size;
    return tar::reader(s.shown(), own);
  };
  return untar_chunks(std::move(in), std::move(open), options.report);
}

}  // namespace millrace::detail
