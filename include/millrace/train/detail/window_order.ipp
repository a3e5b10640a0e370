// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/order/shard_deal.hpp>
#include <millrace/text/entity_tag.hpp>
#include <millrace/train/detail/window_order.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE window_plan::window_plan(std::vector<shard> given, const training_plan& asked)
    : shards(std::move(given)),
      seed(asked.options.seed),
      end_epoch(end_epoch_of(asked.options.first_epoch, asked.options.epochs)),
      rank(asked.options.rank),
      width(static_cast<std::size_t>(asked.begin.streamed->shards)),
      window(static_cast<std::size_t>(asked.begin.streamed->window)),
      window_bytes(asked.begin.streamed->window_bytes),
      take(multiplied(asked.options.take_batches, asked.options.batch)) {
  if (shards.empty()) throw configuration_error("epochs: the list has no shards");
  std::vector<std::pair<std::string, std::size_t>> names;
  for (std::size_t i = 0; i < shards.size(); ++i) names.emplace_back(shards[i].shown(), i);
  std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : shards[a.second].url < shards[b.second].url;
  });
  std::vector<shard> sorted;
  hasher128 digest;
  for (const auto& [name, i] : names) {
    digest.add(name);
    digest.add(shards[i].size.value_or(UINT64_MAX));
    digest.add(millrace::detail::plain_etag(shards[i].etag));
    sorted.push_back(std::move(shards[i]));
  }
  shards = std::move(sorted);
  list = digest.value();
}

MILLRACE_INLINE window_order::window_order(std::shared_ptr<const window_plan> plan, std::uint64_t epoch)
    : plan_(std::move(plan)) {
  begin(epoch);
}

MILLRACE_INLINE void window_order::begin(std::uint64_t epoch) {
  epoch_ = epoch;
  count_ = 0;
  pulled_ = 0;
  turn_ = 0;
  held_.clear();
  held_bytes_ = 0;
  places_.clear();
  numbers_ = shard_deal(plan_->shards, plan_->seed, epoch, plan_->rank.world_size).of_rank(plan_->rank.index);
  for (next_ = 0; next_ < numbers_.size() && next_ < plan_->width; ++next_) {
    places_.emplace_back();
    places_.back().number = next_;
  }
}

MILLRACE_INLINE bool window_order::move_to(std::uint64_t count, std::uint64_t next_number, std::size_t turn,
                                           std::vector<place> places, std::vector<spot> held) {
  if (next_number > numbers_.size() || places.size() > plan_->width || turn > places.size()) return false;
  if (turn == places.size() && turn != 0) return false;
  for (const place& p : places) {
    if (p.number >= next_number) return false;
  }
  count_ = count;
  next_ = next_number;
  turn_ = turn;
  places_ = std::move(places);
  held_ = std::move(held);
  held_bytes_ = 0;
  for (const spot& s : held_) held_bytes_ += s.end - s.begin;
  return true;
}

MILLRACE_INLINE bool window_order::pulls() const noexcept {
  if (places_.empty()) return false;
  if (held_.size() < 2) return true;
  if (held_.size() >= plan_->window || held_bytes_ >= plan_->window_bytes) return false;
  if (count_ != 0) return pulled_ < 2;
  return held_.size() < plan_->window / 10 && held_bytes_ < plan_->window_bytes / 10;
}

MILLRACE_INLINE void window_order::take(std::uint64_t begin, std::uint64_t end) {
  place& p = places_[turn_];
  spot s;
  s.shard = shard_of(p);
  s.begin = begin;
  s.end = end;
  s.ordinal = p.ordinal++;
  p.offset = end;
  held_.push_back(s);
  held_bytes_ += end - begin;
  ++pulled_;
  turn_ = turn_ + 1 == places_.size() ? 0 : turn_ + 1;
}

MILLRACE_INLINE void window_order::shard_ended() {
  if (next_ < numbers_.size()) {
    places_[turn_] = place();
    places_[turn_].number = next_++;
    return;
  }
  places_.erase(places_.begin() + static_cast<std::ptrdiff_t>(turn_));
  if (turn_ == places_.size()) turn_ = 0;
}

MILLRACE_INLINE std::size_t drawn_slot(std::uint64_t seed, std::uint64_t epoch, std::uint64_t count,
                                       std::size_t slots) noexcept {
  return static_cast<std::size_t>(sample_rng(seed, epoch, 0, count, purpose::shuffle).below(slots));
}

MILLRACE_INLINE std::size_t window_order::draw() {
  const std::size_t slot = drawn_slot(plan_->seed, epoch_, count_, std::min(held_.size(), plan_->window));
  held_bytes_ -= held_[slot].end - held_[slot].begin;
  held_[slot] = held_.back();
  held_.pop_back();
  ++count_;
  pulled_ = 0;
  return slot;
}

MILLRACE_INLINE void window_order::next_epoch() { begin(epoch_ + 1); }

MILLRACE_INLINE void window_order::apply(const event& e) {
  if (e.end != 0) {
    take(e.begin, e.end);
  } else if (e.begin == event::shard_ended().begin) {
    shard_ended();
  } else if (e.begin == event::drawn().begin) {
    static_cast<void>(draw());
  } else {
    next_epoch();
  }
}

}  // namespace millrace::detail
