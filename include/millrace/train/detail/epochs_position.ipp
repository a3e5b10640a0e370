// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/train/detail/epochs_position.hpp>
#include <millrace/train/epoch_plan.hpp>

namespace millrace::detail {

MILLRACE_INLINE epochs_position::epochs_position(const epochs_source& source)
    : indexes_(source.sets.front().indexes),
      mix_(source.mix),
      options_(source.options),
      chosen_(source.chosen),
      begin_(source.begin),
      end_(source.walk.end),
      batch_(source.walk.batch),
      world_(source.walk.world),
      ranks_end_together_(source.options.equal != nullptr),
      losses_(source.losses) {}

MILLRACE_INLINE std::string epochs_position::state(const epoch_mark& delivered) const {
  epoch_state now = begin_;
  if (delivered.known) {
    const bool over = delivered.next >= end_ && !ranks_end_together_;
    now.epoch = delivered.epoch + (over ? 1 : 0);
    now.position = over ? 0 : delivered.next;
    const bool own = ((delivered.part && delivered.part.of_rank) || ranks_end_together_) && world_ > 1;
    if (delivered.part) {
      now.taken = delivered.part.taken;
      now.window = state_window(delivered.part.stage, batch_, world_);
    } else if (!own || now.epoch != begin_.epoch || now.position != begin_.position) {
      now.taken = 0;
      now.window = own ? begin_.window : 0;
    }  // else there were but empty entries since a resume
    now.rank = own ? options_.rank.index : 0;
    now.world_size = own ? world_ : 0;
    losses_->write(now);
  }
  return now.text();
}

MILLRACE_INLINE void epochs_position::check_window(std::uint32_t window) const {
  check_state_window(begin_, window, batch_, world_);
}

MILLRACE_INLINE std::optional<std::uint64_t> epochs_position::batches() const {
  return steps_from(end_, 0, batch_, world_);
}

MILLRACE_INLINE training_place epochs_position::place(const epoch_mark& delivered) const {
  training_place at;
  at.epoch = delivered.epoch - options_.first_epoch;
  at.epochs = options_.epochs == endless ? 0 : options_.epochs;
  at.batches = steps_from(end_, 0, batch_, world_);
  // An item that is not the last of its step is of a step that has begun.
  at.batch = at.batches - steps_from(end_, delivered.whole ? delivered.next : delivered.from, batch_, world_);
  return at;
}

MILLRACE_INLINE std::string epochs_position::plan() const {
  const epoch_plan plan =
      mix_ == nullptr ? epoch_plan::of_request(*indexes_, options_) : epoch_plan::of_request(*mix_, options_);
  return plan.text() + (chosen_.empty() ? std::string() : "Chosen: " + chosen_ + '\n') +
         "requests in flight and their length: chosen by what the store is measured to give, at most " +
         std::to_string(options_.requests) + " of " + in_bytes(options_.part) + " (runtime::hosts())\n";
}

MILLRACE_INLINE std::vector<lost_shard> epochs_position::lost() const { return losses_->list(); }

}  // namespace millrace::detail
