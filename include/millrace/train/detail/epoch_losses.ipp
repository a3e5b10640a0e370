// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/train/detail/epoch_losses.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void epoch_losses::carry(const epoch_state& before,
                                         const std::map<std::uint64_t, std::string>& names) {
  const std::lock_guard lock(mutex_);
  shards_.clear();
  for (const auto& [shard, samples] : before.holes) {
    of_shard& s = shards_[shard];
    s.all = {names.at(shard), samples, "lost before the resume"};
    s.passed = samples;
  }
  unnamed_ = before.other_holes;
}

MILLRACE_INLINE void epoch_losses::add(const epoch_mark& at, std::uint64_t shard, const std::string& name,
                                       const std::string& reason) {
  const std::lock_guard lock(mutex_);
  ahead_.push_back({at.epoch, at.position, shard});
  of_shard& s = shards_[shard];
  if (s.all.samples++ == 0) s.all = {name, 1, reason};
}

MILLRACE_INLINE void epoch_losses::write(epoch_state& now) {
  const std::lock_guard lock(mutex_);
  for (; !ahead_.empty(); ahead_.pop_front()) {
    const hole& h = ahead_.front();
    if (h.epoch > now.epoch || (h.epoch == now.epoch && h.position >= now.position)) break;
    ++shards_[h.shard].passed;
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> most;  // samples, shard
  for (const auto& [number, s] : shards_) {
    if (s.passed != 0) most.emplace_back(s.passed, number);
  }
  std::sort(most.rbegin(), most.rend());
  now.holes.clear();
  now.other_holes = unnamed_;
  for (std::size_t i = 0; i < most.size(); ++i) {
    if (i < most_named) {
      now.holes[most[i].second] = most[i].first;
    } else {
      now.other_holes += most[i].first;
    }
  }
}

MILLRACE_INLINE std::vector<lost_shard> epoch_losses::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<lost_shard> out;
  for (const auto& [number, s] : shards_) out.push_back(s.all);
  if (unnamed_ != 0) out.push_back({"(other shards)", unnamed_, "lost before the resume"});
  return out;
}

MILLRACE_INLINE void say_losses(const executor& ex, const std::vector<lost_shard>& lost) {
  constexpr std::size_t most = 10;
  for (std::size_t i = 0; i < lost.size() && i < most; ++i) {
    log_line(ex, "millrace: epochs: lost " + std::to_string(lost[i].samples) + " samples of " + lost[i].shard + ": " +
                     lost[i].reason,
             log_level::warning, {{"stage", "epochs"}, {"shard", lost[i].shard}, {"reason", lost[i].reason}});
  }
  if (lost.size() > most) {
    log_line(ex, "millrace: epochs: and samples of " + std::to_string(lost.size() - most) + " more shards");
  }
}

}  // namespace millrace::detail
