// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/train/detail/epochs_position.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE epochs_position::epochs_position(std::shared_ptr<const training_plan> plan, bool of_mix)
    : beginning_(of_mix && !plan->known() && !plan->saved ? std::string() : plan->beginning()) {
  become(std::move(plan));
}

MILLRACE_INLINE void epochs_position::become(std::shared_ptr<const training_plan> plan) {
  std::map<std::uint64_t, std::string> names;
  for (const auto& [shard, samples] : plan->begin.holes) names[shard] = plan->shown(shard);
  losses_->carry(plan->begin, names);
  const std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}

MILLRACE_INLINE std::shared_ptr<const training_plan> epochs_position::now() const {
  const std::lock_guard lock(mutex_);
  return plan_;
}

MILLRACE_INLINE std::string epochs_position::state(const epoch_mark& delivered) const {
  const auto its = now();
  if (!its->known() || !delivered.known) return beginning_;
  const std::uint64_t world = its->options.rank.world_size;
  const bool together = its->options.equal != nullptr;  // an epoch has not ended before all ranks say so
  const bool over = delivered.next >= its->walk.end && !together;
  epoch_state at = its->begin;
  at.epoch = delivered.epoch + (over ? 1 : 0);
  at.position = over ? 0 : delivered.next;
  const bool own = ((delivered.part && delivered.part.of_rank) || together) && world > 1;
  if (delivered.part) {
    at.taken = delivered.part.taken;
    at.window = its->window_number(delivered.part.stage);
  } else if (!own || at.epoch != its->begin.epoch || at.position != its->begin.position) {
    at.taken = 0;
    at.window = own ? its->begin.window : 0;
  }  // else there were but empty entries since a resume
  at.rank = own ? its->options.rank.index : 0;
  at.world_size = own ? world : 0;
  at.steps = own ? delivered.steps : 0;
  losses_->write(at);
  return at.text();
}

MILLRACE_INLINE void epochs_position::check_window(std::uint32_t window) const { now()->check_window(window); }

MILLRACE_INLINE std::optional<std::uint64_t> epochs_position::batches() const {
  const auto its = now();
  if (!its->known()) return std::nullopt;
  return steps_from(its->walk.end, 0, its->walk.batch, its->walk.world);
}

MILLRACE_INLINE training_place epochs_position::place(const epoch_mark& delivered) const {
  const auto its = now();
  if (!its->known()) return stream_position::place(delivered);
  const epoch_walk::plan& walk = its->walk;
  training_place at;
  at.epoch = delivered.epoch - its->options.first_epoch;
  at.epochs = its->options.epochs == endless ? 0 : its->options.epochs;
  at.batches = steps_from(walk.end, 0, walk.batch, walk.world);
  // An item that is not the last of its step is of a step that has begun.
  at.batch = at.batches - steps_from(walk.end, delivered.whole ? delivered.next : delivered.from, walk.batch,
                                     walk.world);
  return at;
}

MILLRACE_INLINE std::string epochs_position::plan() const {
  const auto its = now();
  return its->known() ? its->text() : std::string();
}

MILLRACE_INLINE std::vector<lost_shard> epochs_position::lost() const { return losses_->list(); }

}  // namespace millrace::detail
