// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/tar/reader.hpp>
#include <millrace/train/detail/held_samples.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE sample sample_at(const window_order::spot& spot, const std::shared_ptr<const shard>& from,
                                 const bytes& data) {
  tar::reader_options how;
  how.start = spot.begin;
  tar::reader members(from->shown(), how);
  members.feed(data);
  sample s;
  tar::entry e;
  while (members.next(e)) {
    if (!e.is_regular()) continue;
    const sample_name name = sample_name::parse(e.name);
    if (!name.is_sample()) continue;
    if (s.from.from == nullptr) {
      s = sample(std::string(name.key()), origin(from, spot.begin, spot.ordinal));
    } else if (s.key != name.key()) {
      s.from.end = 0;
      break;
    }
    origin at(from, e.header_offset, 0);
    member m(std::move(e), std::move(at));
    add_field(s, name, m);
  }
  if (s.from.end != spot.end) {
    throw changed_error("resume: the sample that the window had from here is not there any more",
                        where{from->shown(), spot.begin, s.key});
  }
  s.mark.known = true;
  s.mark.seed = from->seed;
  s.mark.epoch = from->epoch;
  return compact_slices(std::move(s));
}

}  // namespace millrace::detail
