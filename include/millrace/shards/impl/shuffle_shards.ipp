// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/shards/shuffle_shards.hpp>

namespace millrace::detail {

MILLRACE_COROUTINE_BODY async_generator<shard> permute_shards(async_generator<shard> in,
                                                              shuffle_shards_options options) {
  std::vector<shard> all;
  while (auto s = co_await in.next()) all.push_back(std::move(*s));
  rng random(options.seed, options.epoch, 0x7368617264u);  // "shard"
  permute(all, random);
  for (shard& s : all) {
    s.seed = options.seed;
    s.epoch = options.epoch;
    co_yield give(s);
  }
}

MILLRACE_INLINE void say_rank(const rank& r, std::size_t mine, std::uint64_t count) {
  if (r.world_size == 1 && std::strcmp(r.source, rank().source) == 0) return;
  const std::string line = "millrace: rank " + std::to_string(r.index) + " of " + std::to_string(r.world_size) + " (" +
                           r.source + ") reads " + std::to_string(mine) + " of " + std::to_string(count) + " shards";
  if (first_time(line)) std::fprintf(stderr, "%s\n", line.c_str());
}

MILLRACE_COROUTINE_BODY async_generator<shard> take_every(async_generator<shard> in, rank r) {
  std::vector<shard> mine;
  std::uint64_t count = 0;
  while (auto s = co_await in.next()) {
    if (count++ % r.world_size == r.index) mine.push_back(std::move(*s));
  }
  say_rank(r, mine.size(), count);
  if (mine.empty() && count > 0) {
    throw configuration_error("rank " + std::to_string(r.index) + " of " + std::to_string(r.world_size) +
                              " gets no shard: there are only " + std::to_string(count));
  }
  for (shard& s : mine) co_yield give(s);
}

}  // namespace millrace::detail
