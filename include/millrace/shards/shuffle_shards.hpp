// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/data/shard.hpp>

namespace millrace {

/// How the shards of an epoch are permuted.
struct shuffle_shards_options {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
};

namespace detail {

template <class Shards, class Shard = shard>
async_generator<Shard> permute_shards(Shards in, shuffle_shards_options options) {
  std::vector<Shard> all;
  while (auto s = co_await in.next()) all.push_back(std::move(*s));
  rng random(options.seed, options.epoch, 0x7368617264u);  // "shard"
  permute(all, random);
  for (Shard& s : all) co_yield give(s);
}

/// One line about this process's share, said once: the next epoch's says nothing new. Said for a single process too,
/// unless the program named the rank itself: a launcher that was not recognised shows as "rank 0 of 1" on every
/// process.
template <class = void>
void say_rank(const rank& r, std::size_t mine, std::uint64_t count) {
  if (r.world_size == 1 && std::strcmp(r.source, rank().source) == 0) return;
  const std::string line = "millrace: rank " + std::to_string(r.index) + " of " + std::to_string(r.world_size) + " (" +
                           r.source + ") reads " + std::to_string(mine) + " of " + std::to_string(count) + " shards";
  if (first_time(line)) std::fprintf(stderr, "%s\n", line.c_str());
}

template <class Shards, class Shard = shard>
async_generator<Shard> take_every(Shards in, rank r) {
  std::vector<Shard> mine;
  std::uint64_t count = 0;
  while (auto s = co_await in.next()) {
    if (count++ % r.world_size == r.index) mine.push_back(std::move(*s));
  }
  say_rank(r, mine.size(), count);
  if (mine.empty() && count > 0) {
    throw configuration_error("rank " + std::to_string(r.index) + " of " + std::to_string(r.world_size) +
                              " gets no shard: there are only " + std::to_string(count));
  }
  for (Shard& s : mine) co_yield give(s);
}

}  // namespace detail

/// Stage: permutes the shards of an epoch. The order is a pure function of (seed, epoch, the list): the same on every
/// rank and platform. Reads the whole list before it yields the first shard. Bound: the list.
template <class = void>
auto shuffle_shards(shuffle_shards_options options = {}) {
  return [options](async_generator<shard> in) {
    return stream<shard>(detail::permute_shards(std::move(in), options)).named("shuffle_shards");
  };
}

/// Stage: one shard of every `world_size`, starting at the rank's index. Ranks that see the same list get disjoint
/// shares that cover it; a line on standard error says which rank this is, who said so, and how many shards are its own
/// (not for a single process that says so itself): once in a process as long as the numbers are the same, so not for
/// every epoch. run() shows the progress of rank 0 only. A rank that would get nothing is an error, not an empty epoch.
/// Bound: the list.
template <class = void>
auto split_by_rank(rank r) {
  r.check();
  return [r](async_generator<shard> in) {
    return stream<shard>(detail::take_every(std::move(in), r)).named("split_by_rank").of_rank(r.index);
  };
}

}  // namespace millrace
