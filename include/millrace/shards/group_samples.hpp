// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/member.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/sample_name.hpp>

namespace millrace {

namespace detail {

/// Puts a member into its sample, whose name it is known to have.
void add_field(sample& s, const sample_name& name, member& m);

/// `first`: the ordinal of the first sample, where the first shard is not read from its beginning.
MILLRACE_COROUTINE async_generator<sample> group_members(async_generator<member> in, std::uint64_t first = 0);

}  // namespace detail

/// Stage: members -> samples, by WebDataset's rules (tariterators.py): a sample is a run of consecutive members with
/// one key in one shard; the same key again later is a new sample; members without a key and `__meta__` members are
/// passed over; extensions are compared in lower case. Holds one sample, which leaves with the next one's first member
/// or with the archive's end, so that an error of the next shard comes behind it. Copies no data.
///
/// Where it is not as WebDataset (compared over random archives with webdataset 1.0.2): letters beyond ASCII have no
/// lower case, as a table of Unicode, which is not the same in all Pythons, would decide whether two members are one
/// field; "__bad__", by which a member makes its sample vanish there, and "__local_path__" are no extensions; and the
/// slash that a regular file's pax path ends in, which Python takes off, leaves it without an extension.
///
/// Errors: archive_error for an extension that occurs twice in a sample, for "__key__", "__url__" and those two, and
/// for more than 4096 members of one sample. An error that breaks a shard off, whosever it is, says how many samples of
/// the shard were handed on before; of a sample that was not whole yet nothing is.
MILLRACE_COROUTINE inline auto group_samples() {
  return [](async_generator<member> in) {
    return stream<sample>(detail::group_members(std::move(in), 0)).named("group_samples");
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/group_samples.ipp>
#endif
