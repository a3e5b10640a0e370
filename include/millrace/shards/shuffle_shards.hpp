// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace {

/// How the shards of an epoch are permuted.
struct shuffle_shards_options {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
};

namespace detail {

MILLRACE_COROUTINE async_generator<shard> permute_shards(async_generator<shard> in, shuffle_shards_options options);

/// One line about this process's share, said once: the next epoch's says nothing new. Said for a single process too,
/// unless the program named the rank itself: a launcher that was not recognised shows as "rank 0 of 1" on every
/// process.
void say_rank(const rank& r, std::size_t mine, std::uint64_t count);

MILLRACE_COROUTINE async_generator<shard> take_every(async_generator<shard> in, rank r);

}  // namespace detail

/// Stage: permutes the shards of an epoch. The order is a pure function of (seed, epoch, the list): the same on every
/// rank and platform. Each shard takes seed and epoch along, for its samples' own random numbers (sample::random()).
/// Reads the whole list before it yields the first shard. Bound: the list.
MILLRACE_COROUTINE inline auto shuffle_shards(shuffle_shards_options options = {}) {
  return [options](async_generator<shard> in) {
    return stream<shard>(detail::permute_shards(std::move(in), options)).named("shuffle_shards");
  };
}

/// Stage: one shard of every `world_size`, starting at the rank's index. Ranks that see the same list get disjoint
/// shares that cover it; a line on standard error says which rank this is, who said so, and how many shards are its own
/// (not for a single process that says so itself): once in a process as long as the numbers are the same, so not for
/// every epoch. run() shows the progress of rank 0 only. A rank that would get nothing is an error, not an empty epoch.
/// Bound: the list.
MILLRACE_COROUTINE inline auto split_by_rank(rank r) {
  r.check();
  return [r](async_generator<shard> in) {
    return stream<shard>(detail::take_every(std::move(in), r)).named("split_by_rank").of_rank(r);
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/shuffle_shards.ipp>
#endif
