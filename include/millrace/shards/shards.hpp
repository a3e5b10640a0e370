// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Expands WebDataset's brace lists: "train-{0000..1023}.tar" (numbers keep the width of the first one) and
/// "{a,b}.tar", several to a name, not nested. Text without braces is one name. Throws configuration_error for an
/// unclosed brace, an empty list, a range that is not ascending numbers, or more than ten million names.
std::vector<std::string> expand_braces(std::string_view text);

namespace detail {

MILLRACE_COROUTINE async_generator<shard> shards_of_names(std::vector<std::string> names);

}  // namespace detail

/// Source: shards by name, `shards("s3://bucket/train-{0000..1023}.tar")`, https:// URLs and paths alike, in the order
/// of the expansion. Sizes are learnt when they are read.
MILLRACE_COROUTINE stream<shard> shards(std::string_view names);
/// Takes several names or brace lists.
MILLRACE_COROUTINE stream<shard> shards(const std::vector<std::string>& names);

/// How the shards of an epoch are permuted.
struct shuffle_shards_options {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
};

namespace detail {

MILLRACE_COROUTINE async_generator<shard> permute_shards(async_generator<shard> in, shuffle_shards_options options);

/// Logs one line about this process's share, once: later epochs would repeat it. Also for a single process, unless the
/// program set the rank itself: a launcher that was not recognised shows as "rank 0 of 1" on every process.
void log_rank(const rank& r, std::size_t mine, std::uint64_t count);

MILLRACE_COROUTINE async_generator<shard> take_every(async_generator<shard> in, rank r);

}  // namespace detail

/// Stage: permutes the shards of an epoch. The order is a pure function of (seed, epoch, the list): the same on every
/// rank and platform. Each shard gets seed and epoch, for its samples' random numbers (sample::random()).
/// Reads the whole list before it yields the first shard. Bound: the list.
MILLRACE_COROUTINE inline auto shuffle_shards(shuffle_shards_options options = {}) {
  return [options](async_generator<shard> in) {
    return stream<shard>(detail::permute_shards(std::move(in), options)).named("shuffle_shards");
  };
}

/// Stage: one shard of every `world_size`, starting at the rank's index. Ranks that see the same list get disjoint
/// shares that cover it; a line in the log says which rank this is, where that was set, and how many shards it
/// reads (not for a single process that sets it itself): once in a process while the numbers are the same, so not for
/// every epoch. run() shows the progress of rank 0 only. A rank without shards is an error, not an empty epoch. Bound:
/// the list.
MILLRACE_COROUTINE inline auto split_by_rank(rank r) {
  r.check();
  return [r](async_generator<shard> in) {
    return stream<shard>(detail::take_every(std::move(in), r)).named("split_by_rank").of_rank(r);
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/shards.ipp>
#endif
