// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/shards/detail/unpack_job.hpp>

namespace millrace::detail {

MILLRACE_INLINE unpack_step unpack_job::operator()() {
  using event = tar::detail::unpacker::event;
  constexpr std::size_t enough = 4 * MiB;
  if (!piece_.empty()) unpacker_->feed(std::move(piece_));
  if (last_) unpacker_->end_input();
  unpack_step made;
  for (std::size_t total = 0; total < enough;) {
    const event what = unpacker_->run();
    bytes data = unpacker_->take_data();
    if (!data.empty()) {
      total += data.size();
      made.out.push_back(std::move(data));
    }
    if (what == event::data) continue;
    made.hungry = what == event::hungry;
    made.done = what == event::done;
    made.failed = what == event::failed;
    if (made.failed) {
      made.reason = unpacker_->reason();
      made.offset = unpacker_->offset();
    }
    break;
  }
  return made;
}

}  // namespace millrace::detail
