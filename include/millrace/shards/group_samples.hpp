// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <millrace/coro/async_generator.hpp>
#include <millrace/shards/member.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/sample_name.hpp>

namespace millrace {

namespace detail {

template <class Members>
async_generator<sample> group_members(Members in) {
  sample current;
  bool open = false;
  std::uint64_t ordinal = 0;
  while (auto m = co_await in.next()) {
    const sample_name name = sample_name::parse(m->entry.name);
    if (!name.is_sample()) continue;
    const bool same_shard = open && current.from.from == m->from.from;
    if (open && !(same_shard && current.key == name.key())) {
      co_yield give(current);
      ordinal = same_shard ? ordinal + 1 : 0;
      open = false;
    }
    if (!open) {
      current = sample(std::string(name.key()), origin(m->from.from, m->from.offset, ordinal));
      open = true;
    }
    if (current.fields.size() >= 4096) {  // each is compared with all
      throw archive_error("the sample has more than 4096 members", m->from.at(m->entry.name));
    }
    std::string extension = name.lower_extension();
    if (current.find(extension) != nullptr) {
      throw archive_error("the sample has two members with the extension \"" + extension + "\"",
                          m->from.at(m->entry.name));
    }
    current.fields.emplace_back(std::move(extension), std::move(m->entry.body));
  }
  if (open) co_yield give(current);
}

}  // namespace detail

/// Stage: members -> samples, by WebDataset's rules (tariterators.py): a sample is a run of consecutive members with
/// one key in one shard; the same key again later is a new sample; members without a key and `__meta__` members are
/// passed over; extensions are compared in lower case, and one that occurs twice in a sample is an archive_error.
/// Holds one sample; copies no data.
template <class = void>
auto group_samples() {
  return [](async_generator<member> in) { return detail::group_members(std::move(in)).named("group_samples"); };
}

}  // namespace millrace
