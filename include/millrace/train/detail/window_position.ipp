// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/order/detail/words.hpp>
#include <millrace/text/entity_tag.hpp>
#include <millrace/train/detail/training_plan.hpp>
#include <millrace/train/detail/window_position.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE constexpr std::uint64_t tar_block = 512;  // all offsets are multiples of it

MILLRACE_INLINE void note_place(epoch_state& state, const window_order& order, const known_shards& known) {
  state.epoch = order.epoch();
  state.position = order.count();
  state.streamed->place.clear();
  if (state.position == 0) return;
  using spot = window_order::spot;
  const std::vector<spot>& held = order.held();
  std::vector<std::size_t> by_place(held.size());
  std::iota(by_place.begin(), by_place.end(), std::size_t{0});
  std::sort(by_place.begin(), by_place.end(), [&](std::size_t a, std::size_t b) {
    return held[a].shard != held[b].shard ? held[a].shard < held[b].shard : held[a].begin < held[b].begin;
  });
  word_writer out;
  out.add(order.next_number());
  out.add(order.turn());
  out.add(order.places().size());
  std::vector<std::uint64_t> used;
  for (const window_order::place& p : order.places()) {
    out.add(p.number);
    out.add(p.offset / tar_block);
    out.add(p.ordinal);
    if (p.offset != 0) used.push_back(order.shard_of(p));
  }
  for (const spot& s : held) used.push_back(s.shard);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  out.add(used.size());
  auto next = by_place.begin();
  std::uint64_t before = 0;
  for (const std::uint64_t number : used) {  // each with its version, and its samples in the window
    out.add(number - std::exchange(before, number));
    const auto found = known.find(number);
    out.add(found != known.end() && found->second.size ? *found->second.size + 1 : 0);
    out.add(std::string_view(found != known.end() ? found->second.etag : std::string()));
    const auto end = std::find_if(next, by_place.end(), [&](std::size_t i) { return held[i].shard != number; });
    out.add(static_cast<std::uint64_t>(end - next));
    std::uint64_t offset = 0;
    std::uint64_t ordinal = 0;
    for (; next != end; ++next) {
      const spot& s = held[*next];
      out.add((s.begin - offset) / tar_block);
      out.add((s.end - s.begin) / tar_block);
      out.add(s.ordinal - ordinal);
      out.add(*next);
      offset = s.end;
      ordinal = s.ordinal + 1;
    }
  }
  state.streamed->place = out.text();
}

MILLRACE_INLINE window_order order_at(const epoch_state& state, std::shared_ptr<const window_plan> plan,
                                      known_shards& known) {
  window_order out(plan, state.epoch);
  if (state.position == 0) return out;
  const auto fail = [](const char* reason) { throw configuration_error("resume: " + std::string(reason)); };
  constexpr std::uint64_t most = UINT64_MAX / tar_block / 2;  // blocks
  word_reader in(state.streamed->place);
  const std::uint64_t next = in.next();
  const std::uint64_t turn = in.next();
  std::vector<window_order::place> places(static_cast<std::size_t>(in.next_below(in.left())));
  for (window_order::place& p : places) {
    p.number = in.next();
    p.offset = in.next_below(most) * tar_block;
    p.ordinal = in.next();
  }
  std::vector<window_order::spot> held;
  std::vector<std::size_t> slots;
  std::uint64_t number = 0;
  for (std::uint64_t n = in.next_below(in.left() + 1); n > 0 && in.good(); --n) {
    number += in.next();
    const std::uint64_t size = in.next();
    const std::string etag = in.next_text();
    if (!in.good() || number >= plan->shards.size()) {
      // It is of another list, or damaged: decided below.
    } else {
      const shard& listed = plan->shards[static_cast<std::size_t>(number)];
      if (!etag.empty() && !listed.etag.empty() && !millrace::detail::same_etag(listed.etag, etag)) {
        throw changed_error("resume: the shard has changed: its ETag was " + etag + " and is " + listed.etag,
                            where{listed.shown(), std::nullopt, {}});
      }
      shard& seen = known.try_emplace(number, listed).first->second;
      if (seen.etag.empty()) seen.etag = etag;
      if (!seen.size && size != 0) seen.size = size - 1;
    }
    std::uint64_t offset = 0;
    std::uint64_t ordinal = 0;
    for (std::uint64_t k = in.next_below(in.left() + 1); k > 0 && in.good(); --k) {
      window_order::spot s;
      s.shard = number;
      s.begin = offset + in.next_below(most) * tar_block;
      s.end = s.begin + in.next_below(most) * tar_block;
      s.ordinal = ordinal + in.next();
      offset = s.end;
      ordinal = s.ordinal + 1;
      held.push_back(s);
      slots.push_back(static_cast<std::size_t>(in.next()));
      if (offset > most * tar_block) fail("\"place\" of the state is damaged");
    }
  }
  if (!in.done()) fail("\"place\" of the state is damaged");
  if (state.streamed->list != plan->list) {
    throw configuration_error("resume: the state is of another order: its list of shards (digest) was " +
                              state.streamed->list.text() + " and is " + plan->list.text());
  }
  std::vector<window_order::spot> in_slots(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) {
    const bool fits = slots[i] < held.size() && in_slots[slots[i]].end == 0 && held[i].end > held[i].begin &&
                      held[i].shard < plan->shards.size();
    if (!fits) fail("\"place\" of the state is of no such window");
    in_slots[slots[i]] = held[i];
  }
  if (turn > places.size() ||
      !out.move_to(state.position, next, static_cast<std::size_t>(turn), std::move(places), std::move(in_slots))) {
    fail("\"place\" of the state is of no such shards");
  }
  return out;
}

MILLRACE_INLINE window_position::window_position(std::shared_ptr<const training_plan> asked)
    : asked_(std::move(asked)) {}

MILLRACE_INLINE epoch_state window_position::begin_of(const window_plan& plan, std::uint64_t epoch) const {
  epoch_state begin = asked_->begin;
  begin.epoch = epoch;
  begin.streamed->list = plan.list;
  return begin;
}

MILLRACE_INLINE window_order window_position::begin(std::shared_ptr<const window_plan> plan) {
  const std::lock_guard order_lock(order_mutex_);
  const std::lock_guard lock(known_mutex_);
  plan_ = std::move(plan);
  const std::optional<epoch_state>& saved = asked_->saved;
  if (!saved) {
    order_ = std::make_unique<window_order>(plan_, asked_->begin.epoch);
    return *order_;
  }
  saved->check(begin_of(*plan_, asked_->begin.epoch));
  order_ = std::make_unique<window_order>(order_at(*saved, plan_, known_));
  if (saved->streamed->list == plan_->list) {
    if (!saved->holes.empty() && saved->holes.rbegin()->first >= plan_->shards.size()) {
      throw configuration_error("resume: the state has losses of a shard that is not listed");
    }
    std::map<std::uint64_t, std::string> names;
    for (const auto& [number, samples] : saved->holes) {
      names[number] = plan_->shards[static_cast<std::size_t>(number)].shown();
    }
    losses_.carry(*saved, names);
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

MILLRACE_INLINE void window_position::check_window(std::uint32_t window) const { asked_->check_window(window); }

MILLRACE_INLINE void window_position::passed(const epoch_mark& delivered) const {
  const std::lock_guard lock(order_mutex_);
  if (order_ != nullptr && delivered.known) advance_to(delivered);
}

MILLRACE_INLINE std::string window_position::state(const epoch_mark& delivered) const {
  const std::lock_guard lock(order_mutex_);
  if (order_ == nullptr || !delivered.known) return asked_->beginning();
  const bool inside = delivered.part && delivered.part.taken != 0;
  const bool together = asked_->options.equal != nullptr;  // an epoch has not ended before all ranks say so
  if (inside && together && !asked_->options.uneven) {     // empty entries fill up its steps from here on
    throw usage_error(
        "state(): inside a window of bucket_by_length(), a document of pack() or a sample of flat_map() there is none "
        "with .equal: say .uneven too, and put equal.fill() after that stage");
  }
  advance_to(delivered);
  if (order_->epoch() != delivered.epoch || order_->count() != delivered.next) {
    throw usage_error("state(): the stream has gone too far ahead of what was delivered, or a later state was taken");
  }
  epoch_state now = begin_of(order_->plan(), order_->epoch());
  if (order_->over() && !together) {
    ++now.epoch;
  } else {
    const std::lock_guard known_lock(known_mutex_);
    note_place(now, *order_, known_);
    now.steps = delivered.steps;
    now.taken = inside ? delivered.part.taken : 0;
    now.window = inside ? asked_->window_number(delivered.part.stage) : 0;
    // With equal_batches there may have been but empty entries since a resume.
    const std::optional<epoch_state>& saved = asked_->saved;
    const bool same = saved && saved->epoch == delivered.epoch && saved->position == delivered.next;
    if (same && together && !delivered.part) {
      now.taken = saved->taken;
      now.window = saved->window;
    }
  }
  losses_.write(now);
  return now.text();
}

MILLRACE_INLINE std::optional<std::uint64_t> window_position::batches() const { return std::nullopt; }

MILLRACE_INLINE training_place window_position::place(const epoch_mark& delivered) const {
  training_place at;
  at.epoch = delivered.epoch - asked_->options.first_epoch;
  at.epochs = asked_->options.epochs == endless ? 0 : asked_->options.epochs;
  return at;
}

MILLRACE_INLINE std::string window_position::plan() const { return {}; }

MILLRACE_INLINE std::vector<lost_shard> window_position::lost() const { return losses_.list(); }

}  // namespace millrace::detail
