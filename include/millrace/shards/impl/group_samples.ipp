// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/shards/detail/handed_on.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/sample_name.hpp>

namespace millrace::detail {

MILLRACE_INLINE void add_field(sample& s, const sample_name& name, member& m) {
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
  // In a plain tar a body begins at a block, and the next header at the next one.
  if (m.entry.data_offset > m.from.offset) s.from.end = m.entry.data_offset + (m.entry.size + 511) / 512 * 512;
}

MILLRACE_COROUTINE_BODY async_generator<sample> group_members(async_generator<member> in, std::uint64_t first) {
  sample current;
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
        if (source != m->from.from) handed_on = std::exchange(first, 0);
        source = m->from.from;
        current = sample(std::string(name.key()), origin(source, m->from.offset, handed_on));
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

}  // namespace millrace::detail
