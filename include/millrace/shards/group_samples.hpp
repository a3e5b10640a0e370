// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/detail/handed_on.hpp>
#include <millrace/shards/member.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/sample_name.hpp>

namespace millrace {

namespace detail {

/// Puts a member into its sample, whose name it is known to have.
template <class = void>
void add_field(sample& s, const sample_name& name, member& m) {
  if (s.fields.size() >= 4096) {  // each is compared with all
    throw archive_error("the sample has more than 4096 members", m.from.at(m.entry.name));
  }
  std::string extension = name.lower_extension();
  if (extension == "__key__" || extension == "__url__" || extension == "__bad__" || extension == "__local_path__") {
    throw archive_error("the extension \"" + extension + "\" stands for what a sample has beside its members",
                        m.from.at(m.entry.name));
  }
  if (s.find(extension) != nullptr) {
    throw archive_error("the sample has two members with the extension \"" + extension + "\"", m.from.at(m.entry.name));
  }
  s.fields.emplace_back(std::move(extension), std::move(m.entry.body));
}

template <class Members, class Sample = sample>
async_generator<Sample> group_members(Members in) {
  Sample current;
  bool open = false;
  std::shared_ptr<const shard> source;   // of the last sample that was opened
  std::uint64_t handed_on = 0;  // samples of it
  for (;;) {
    std::optional<member> m;
    try {
      m = co_await in.next();
    } catch (error& e) {
      if (source != nullptr) note_handed_on(e, *source, handed_on, "sample");
      throw;
    }
    if (!m) break;
    const sample_name name = sample_name::parse(m->entry.name);
    if (name.is_sample()) {
      if (open && !(source == m->from.from && current.key == name.key())) {
        co_yield give(current);
        ++handed_on;
        open = false;
      }
      if (!open) {
        if (source != m->from.from) handed_on = 0;
        source = m->from.from;
        current = Sample(std::string(name.key()), origin(source, m->from.offset, handed_on));
        if (source != nullptr && source->dealt) {
          current.mark.known = true;
          current.mark.seed = source->seed;
          current.mark.epoch = source->epoch;
        }
        open = true;
      }
      try {
        add_field(current, name, *m);
      } catch (error& e) {
        note_handed_on(e, *source, handed_on, "sample");
        throw;
      }
    }
    if (m->last) {
      if (open) co_yield give(current);  // now, and not with the next shard, which may be broken
      open = false;
      source = nullptr;
    }
  }
  if (open) co_yield give(current);
}

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
template <class = void>
auto group_samples() {
  return [](async_generator<member> in) {
    return stream<sample>(detail::group_members(std::move(in))).named("group_samples");
  };
}

}  // namespace millrace
