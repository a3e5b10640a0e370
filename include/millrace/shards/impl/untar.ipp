// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/shards/detail/untar_chunks.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/archive_reader.hpp>

namespace millrace::detail {

MILLRACE_COROUTINE_BODY async_generator<member> untar_members(async_generator<chunk> in, tar::archive_options options) {
  auto open = [options, pool = slab_pool(MiB)](const shard& s) {
    tar::archive_options own = options;
    if (s.size) own.members.object_bytes = *s.size;
    return tar::archive_reader(s.shown(), own, pool);
  };
  return untar_chunks(std::move(in), std::move(open), options.members.report);
}

}  // namespace millrace::detail
