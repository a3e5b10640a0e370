// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/train/detail/epochs_position.hpp>
#include <millrace/train/epoch_plan.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE epochs_position::epochs_position(const epochs_request& options, bool of_mix)
    : beginning_(options.resume), batch_(options.batch), world_(options.rank.world_size) {
  if (!beginning_.empty() || of_mix) return;
  epoch_state first;  // at an epoch's beginning the index may be any
  first.seed = options.seed;
  first.epoch = options.first_epoch;
  first.tracks = options.tracks;
  first.slice = options.slice;
  first.hosts = options.hosts;
  beginning_ = first.text();
}

MILLRACE_INLINE void epochs_position::become(const epochs_source& source) {
  auto its = std::make_shared<training>();
  its->indexes = source.sets.front().indexes;
  its->mix = source.mix;
  its->options = source.options;
  its->chosen = source.chosen;
  its->begin = source.begin;
  its->end = source.walk.end;
  its->ranks_end_together = source.options.equal != nullptr;
  its->losses = source.losses;
  const std::lock_guard lock(mutex_);
  known_ = std::move(its);
}

MILLRACE_INLINE std::shared_ptr<const epochs_position::training> epochs_position::known() const {
  const std::lock_guard lock(mutex_);
  return known_;
}

MILLRACE_INLINE std::string epochs_position::state(const epoch_mark& delivered) const {
  const auto its = known();
  if (its == nullptr || !delivered.known) return beginning_;
  const bool over = delivered.next >= its->end && !its->ranks_end_together;
  epoch_state now = its->begin;
  now.epoch = delivered.epoch + (over ? 1 : 0);
  now.position = over ? 0 : delivered.next;
  const bool own = ((delivered.part && delivered.part.of_rank) || its->ranks_end_together) && world_ > 1;
  if (delivered.part) {
    now.taken = delivered.part.taken;
    now.window = state_window(delivered.part.stage, batch_, world_);
  } else if (!own || now.epoch != its->begin.epoch || now.position != its->begin.position) {
    now.taken = 0;
    now.window = own ? its->begin.window : 0;
  }  // else there were but empty entries since a resume
  now.rank = own ? its->options.rank.index : 0;
  now.world_size = own ? world_ : 0;
  now.steps = own ? delivered.steps : 0;
  its->losses->write(now);
  return now.text();
}

MILLRACE_INLINE void epochs_position::check_window(std::uint32_t window) const {
  if (beginning_.empty()) return;
  check_state_window(epoch_state::parse(beginning_), window, batch_, world_);
}

MILLRACE_INLINE std::optional<std::uint64_t> epochs_position::batches() const {
  const auto its = known();
  if (its == nullptr) return std::nullopt;
  return steps_from(its->end, 0, batch_, world_);
}

MILLRACE_INLINE training_place epochs_position::place(const epoch_mark& delivered) const {
  const auto its = known();
  if (its == nullptr) return stream_position::place(delivered);
  training_place at;
  at.epoch = delivered.epoch - its->options.first_epoch;
  at.epochs = its->options.epochs == endless ? 0 : its->options.epochs;
  at.batches = steps_from(its->end, 0, batch_, world_);
  // An item that is not the last of its step is of a step that has begun.
  at.batch = at.batches - steps_from(its->end, delivered.whole ? delivered.next : delivered.from, batch_, world_);
  return at;
}

MILLRACE_INLINE std::string epochs_position::plan() const {
  const auto its = known();
  if (its == nullptr) return {};
  const epoch_plan plan = its->mix == nullptr ? epoch_plan::of_request(*its->indexes, its->options)
                                              : epoch_plan::of_request(*its->mix, its->options);
  return plan.text() + (its->chosen.empty() ? std::string() : "Chosen: " + its->chosen + '\n') +
         "requests in flight and their length: chosen by what the store is measured to give, at most " +
         std::to_string(its->options.requests) + " of " + in_bytes(its->options.part) + " (runtime::hosts())\n";
}

MILLRACE_INLINE std::vector<lost_shard> epochs_position::lost() const {
  const auto its = known();
  return its == nullptr ? std::vector<lost_shard>() : its->losses->list();
}

}  // namespace millrace::detail
