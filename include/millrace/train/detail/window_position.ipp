// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/train/detail/epochs_source.hpp>
#include <millrace/train/detail/window_position.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE window_position::window_position(const epochs_request& options, std::optional<window_state> saved)
    : saved_(std::move(saved)),
      beginning_(options.resume),
      first_epoch_(options.first_epoch),
      end_epoch_(end_epoch_of(options.first_epoch, options.epochs)),
      batch_(options.batch),
      world_(options.rank.world_size),
      ranks_end_together_(options.equal != nullptr),
      filled_(options.equal != nullptr && !options.uneven) {
  if (saved_ && (saved_->epoch < first_epoch_ || saved_->epoch > end_epoch_)) {
    throw configuration_error("resume: the state is in epoch " + std::to_string(saved_->epoch) +
                              ", which is not one of this training");
  }
  if (!beginning_.empty()) return;
  window_state first;  // at an epoch's beginning the list may be any
  first.seed = options.seed;
  first.epoch = options.first_epoch;
  first.rank = options.rank.index;
  first.world_size = options.rank.world_size;
  first.shards = options.shards;
  first.window = options.window;
  first.window_bytes = options.window_bytes;
  beginning_ = first.text();
}

MILLRACE_INLINE window_order window_position::begin(std::shared_ptr<const window_plan> plan) {
  const std::lock_guard order_lock(order_mutex_);
  const std::lock_guard lock(known_mutex_);
  plan_ = std::move(plan);
  if (saved_) saved_->check(*plan_);
  order_ = std::make_unique<window_order>(saved_ ? saved_->order(plan_, known_) : window_order(plan_, first_epoch_));
  if (saved_ && saved_->list == plan_->list) {
    std::vector<std::string> names;
    for (const shard& s : plan_->shards) names.push_back(s.shown());
    if (!saved_->losses.holes.empty() && saved_->losses.holes.rbegin()->first >= names.size()) {
      throw configuration_error("resume: the state has losses of a shard that is not listed");
    }
    losses_.carry(saved_->losses, names);
  }
  return *order_;
}

MILLRACE_INLINE void window_position::note(const window_order::event& e) {
  bool full = false;
  {
    const std::lock_guard lock(noted_mutex_);
    noted_.push_back(e);
    full = noted_.size() >= most_noted;
  }
  if (full) fold();
}

/// No state was requested for long: the older half is applied.
MILLRACE_INLINE void window_position::fold() {
  const std::lock_guard order_lock(order_mutex_);
  while (ahead_.size() > most_noted / 2) {
    order_->apply(ahead_.front());
    ahead_.pop_front();
  }
  const std::lock_guard lock(noted_mutex_);
  ahead_.insert(ahead_.end(), noted_.begin(), noted_.end());
  noted_.clear();
}

MILLRACE_INLINE void window_position::note_version(std::uint64_t number, const origin& from) {
  if (from.from == nullptr) return;
  const std::lock_guard lock(known_mutex_);
  known_.try_emplace(number, *from.from);
}

MILLRACE_INLINE shard window_position::version_of(std::uint64_t number) const {
  shard listed = plan_->shards[static_cast<std::size_t>(number)];
  const std::lock_guard lock(known_mutex_);
  const auto found = known_.find(number);
  if (found == known_.end()) return listed;
  if (listed.etag.empty()) listed.etag = found->second.etag;
  if (!listed.size) listed.size = found->second.size;
  return listed;
}

MILLRACE_INLINE void window_position::note_loss(std::uint64_t number, const window_order& at,
                                                const std::string& reason) {
  epoch_mark mark;
  mark.epoch = at.epoch();
  mark.position = at.count();
  losses_.add(mark, number, at.plan().shards[static_cast<std::size_t>(number)].shown(), reason);
}

MILLRACE_INLINE void window_position::advance_to(const epoch_mark& delivered) const {
  {
    const std::lock_guard lock(noted_mutex_);
    ahead_.insert(ahead_.end(), noted_.begin(), noted_.end());
    noted_.clear();
  }
  while (!ahead_.empty() && (order_->epoch() < delivered.epoch ||
                             (order_->epoch() == delivered.epoch && order_->count() < delivered.next))) {
    order_->apply(ahead_.front());
    ahead_.pop_front();
  }
}

MILLRACE_INLINE void window_position::check_window(std::uint32_t window) const {
  if (!saved_) return;
  epoch_state saved;
  saved.taken = saved_->taken;
  saved.window = saved_->taken_of;
  check_state_window(saved, window, batch_, world_);
}

MILLRACE_INLINE void window_position::passed(const epoch_mark& delivered) const {
  const std::lock_guard lock(order_mutex_);
  if (order_ != nullptr && delivered.known) advance_to(delivered);
}

MILLRACE_INLINE std::string window_position::state(const epoch_mark& delivered) const {
  const std::lock_guard lock(order_mutex_);
  if (order_ == nullptr || !delivered.known) return beginning_;
  const bool inside = delivered.part && delivered.part.taken != 0;
  if (inside && filled_) {
    throw usage_error(
        "state(): inside a window of bucket_by_length(), a document of pack() or a sample of flat_map() there is none "
        "with .equal: say .uneven too, and put equal.fill() after that stage");
  }
  advance_to(delivered);
  if (order_->epoch() != delivered.epoch || order_->count() != delivered.next) {
    throw usage_error("state(): the stream has gone too far ahead of what was delivered, or a later state was taken");
  }
  window_state now(order_->plan(), order_->epoch());
  if (order_->over() && !ranks_end_together_) {
    ++now.epoch;
  } else {
    const std::lock_guard known_lock(known_mutex_);
    now.stand_at(*order_, known_);
    now.steps = delivered.steps;
    now.taken = inside ? delivered.part.taken : 0;
    now.taken_of = inside ? state_window(delivered.part.stage, batch_, world_) : 0;
    // Of equal_batches there may have been but empty entries since a resume.
    const bool same = saved_ && saved_->epoch == delivered.epoch && saved_->position == delivered.next;
    if (same && ranks_end_together_ && !delivered.part) {
      now.taken = saved_->taken;
      now.taken_of = saved_->taken_of;
    }
  }
  epoch_state counted;
  counted.epoch = now.epoch;
  counted.position = now.position;
  losses_.write(counted);
  now.losses.holes = counted.holes;
  now.losses.other_holes = counted.other_holes;
  return now.text();
}

MILLRACE_INLINE std::optional<std::uint64_t> window_position::batches() const { return std::nullopt; }

MILLRACE_INLINE training_place window_position::place(const epoch_mark& delivered) const {
  training_place at;
  at.epoch = delivered.epoch - first_epoch_;
  at.epochs = end_epoch_ == endless ? 0 : end_epoch_ - first_epoch_;
  return at;
}

MILLRACE_INLINE std::string window_position::plan() const { return {}; }

MILLRACE_INLINE std::vector<lost_shard> window_position::lost() const { return losses_.list(); }

}  // namespace millrace::detail
