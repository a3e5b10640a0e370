// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Adds to an error that ends `from` early how many of its items ("sample", "member") a stage had delivered before.
void note_delivered(error& broken, const shard& from, std::uint64_t count, const char* item);

MILLRACE_EXTERN_TEMPLATE(async_generator<sample> shuffle_items<sample>(async_generator<sample>, shuffle_options));
MILLRACE_EXTERN_TEMPLATE(async_generator<std::vector<sample>> batch_items<sample>(async_generator<sample>, std::size_t,
                                                                                  last_batch));

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// Logs, once in a process, that two images are fields of one sample `s`, since their names have a dot before their
/// endings: the field to be added has `extension`, which has a dot.
void note_dotted(const sample& s, std::string_view extension);

/// The message about a shard whose regular files give no sample.
std::string no_sample_of(std::uint64_t members, std::string_view first);

/// Puts a member into its sample, whose name it is known to have.
void add_field(sample& s, const sample_name& name, member& m);

/// `first`: the ordinal of the first sample, where the first shard is not read from its beginning.
MILLRACE_COROUTINE async_generator<sample> group_members(async_generator<member> in, std::uint64_t first = 0);

}  // namespace detail

/// Stage: members -> samples, by WebDataset's rules (tariterators.py): a sample is a run of consecutive members with
/// one key in one shard; the same key again later is a new sample; members without a key and `__meta__` members are
/// skipped; extensions are compared in lower case. Holds one sample, which leaves with the next one's first member or
/// with the archive's end, so that an error of the next shard comes after it. Copies no data.
///
/// One line in the log, once in a process, names a sample in which images come together because their keys have dots
/// (`clip_1.100.png`, `clip_1.101.png`); one for each of the first five shards that have files and give no sample.
///
/// Differences from WebDataset (compared over random archives with webdataset 1.0.2): letters beyond ASCII have no
/// lower case, as a table of Unicode, which is not the same in all Pythons, would decide whether two members are one
/// field; "__bad__", by which a member makes its sample vanish there, and "__local_path__" are no extensions; and the
/// slash that a regular file's pax path ends in, which Python takes off, leaves it without an extension.
///
/// Errors: archive_error for an extension that occurs twice in a sample, for "__key__", "__url__" and those two, and
/// for more than 4096 members of one sample. An error that ends a shard early, of any stage, says how many samples of
/// the shard were delivered before; an incomplete sample is not delivered.
MILLRACE_COROUTINE inline auto group_samples() {
  return [](async_generator<member> in) {
    return stream<sample>(detail::group_members(std::move(in), 0)).named("group_samples");
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/group_samples.ipp>
#endif
