// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/shared.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/shards/member.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/sample_name.hpp>

namespace millrace {

namespace detail {

template <class Members, class Sample = sample>
async_generator<Sample> group_members(Members in) {
  Sample current;
  bool open = false;
  shared<const shard> source;  // of the last sample that was opened
  std::uint64_t ordinal = 0;
  while (auto m = co_await in.next()) {
    const sample_name name = sample_name::parse(m->entry.name);
    if (name.is_sample()) {
      if (open && !(source == m->from.from && current.key == name.key())) {
        co_yield give(current);
        open = false;
      }
      if (!open) {
        ordinal = source == m->from.from ? ordinal + 1 : 0;
        source = m->from.from;
        current = Sample(std::string(name.key()), origin(source, m->from.offset, ordinal));
        open = true;
      }
      if (current.fields.size() >= 4096) {  // each is compared with all
        throw archive_error("the sample has more than 4096 members", m->from.at(m->entry.name));
      }
      std::string extension = name.lower_extension();
      if (extension == "__key__" || extension == "__url__") {
        throw archive_error("the extension \"" + extension + "\" stands for what every sample has beside its members",
                            m->from.at(m->entry.name));
      }
      if (current.find(extension) != nullptr) {
        throw archive_error("the sample has two members with the extension \"" + extension + "\"",
                            m->from.at(m->entry.name));
      }
      current.fields.emplace_back(std::move(extension), std::move(m->entry.body));
    }
    if (open && m->last) {  // now, and not with the next shard, which may be broken
      co_yield give(current);
      open = false;
    }
  }
  if (open) co_yield give(current);
}

}  // namespace detail

/// Stage: members -> samples, by WebDataset's rules (tariterators.py): a sample is a run of consecutive members with
/// one key in one shard; the same key again later is a new sample; members without a key and `__meta__` members are
/// passed over; extensions are compared in lower case, and one that occurs twice in a sample is an archive_error, as
/// are
/// "__key__" and "__url__". Holds one sample, which leaves with the next one's first member or with the archive's end,
/// so that an error of the next shard comes behind it. Copies no data.
template <class = void>
auto group_samples() {
  return [](async_generator<member> in) { return detail::group_members(std::move(in)).named("group_samples"); };
}

}  // namespace millrace
