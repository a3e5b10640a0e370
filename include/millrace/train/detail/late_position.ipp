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
#include <millrace/train/detail/late_position.hpp>

namespace millrace::detail {

MILLRACE_INLINE late_position::late_position(const epochs_request& options, bool of_mix)
    : beginning_(options.resume), batch_(options.batch), world_(options.rank.world_size) {
  if (!beginning_.empty() || of_mix) return;
  epoch_state first;  // at an epoch's beginning the index may be any
  first.seed = options.seed;
  first.epoch = options.first_epoch;
  first.tracks = options.tracks;
  first.slice = options.slice;
  beginning_ = first.text();
}

MILLRACE_INLINE void late_position::become(std::shared_ptr<const epochs_position> position) {
  const std::lock_guard lock(mutex_);
  known_ = std::move(position);
}

MILLRACE_INLINE std::shared_ptr<const epochs_position> late_position::known() const {
  const std::lock_guard lock(mutex_);
  return known_;
}

MILLRACE_INLINE std::string late_position::state(const epoch_mark& delivered) const {
  const auto position = known();
  return position == nullptr || !delivered.known ? beginning_ : position->state(delivered);
}

MILLRACE_INLINE void late_position::check_window(std::uint32_t window) const {
  if (beginning_.empty()) return;
  check_state_window(epoch_state::parse(beginning_), window, batch_, world_);
}

MILLRACE_INLINE std::optional<std::uint64_t> late_position::batches() const {
  const auto position = known();
  return position == nullptr ? std::nullopt : position->batches();
}

MILLRACE_INLINE training_place late_position::place(const epoch_mark& delivered) const {
  const auto position = known();
  return position == nullptr ? stream_position::place(delivered) : position->place(delivered);
}

MILLRACE_INLINE std::string late_position::plan() const {
  const auto position = known();
  return position == nullptr ? std::string() : position->plan();
}

MILLRACE_INLINE std::vector<lost_shard> late_position::lost() const {
  const auto position = known();
  return position == nullptr ? std::vector<lost_shard>() : position->lost();
}

}  // namespace millrace::detail
