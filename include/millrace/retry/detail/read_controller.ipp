// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/retry/detail/read_controller.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE read_controller::read_controller(const bounds& b) noexcept : requests_(1), part_(b.longest / 4) {
  set_bounds(b);
}

MILLRACE_INLINE void read_controller::set_bounds(const bounds& b) noexcept {
  bounds_ = b;
  bounds_.longest = std::max<std::size_t>(1, std::min(b.longest, b.bytes / 2));
  bounds_.shortest = std::min(b.shortest, bounds_.longest);
  const std::size_t before = part_;
  part_ = bounds_.longest;
  while (part_ / 2 >= bounds_.shortest && part_ > before) part_ /= 2;
  set_requests(measured_ ? wanted_ : static_cast<double>(bounds_.start));
}

MILLRACE_INLINE double read_controller::length(std::size_t part) const noexcept {
  const auto p = static_cast<double>(part);
  return object_ > 0 ? std::min(p, object_) : p;
}

MILLRACE_INLINE double read_controller::most(std::size_t part) const noexcept {
  return std::min(static_cast<double>(bounds_.requests), static_cast<double>(bounds_.bytes) / length(part));
}

MILLRACE_INLINE bool read_controller::at_bound() const noexcept {
  return blocked_ || static_cast<double>(requests_) + 1 > most(part_);
}

MILLRACE_INLINE bool read_controller::at_bytes() const noexcept {
  const double most_by_bytes = static_cast<double>(bounds_.bytes) / length(part_);
  return wanted_ > most_by_bytes && most_by_bytes < static_cast<double>(bounds_.requests);
}

MILLRACE_INLINE read_limit read_controller::limit() const noexcept {
  if (state_ == state::learning || state_ == state::growing) return read_limit::none;
  if (full_) return read_limit::link;
  if (at_bytes() || blocked_) return read_limit::memory;
  return requests_ >= bounds_.requests ? read_limit::requests : read_limit::link;
}

MILLRACE_INLINE void read_controller::set_requests(double n) noexcept {
  wanted_ = n;
  requests_ = static_cast<std::size_t>(std::clamp(n, 1.0, std::max(1.0, most(part_))));
}

MILLRACE_INLINE void read_controller::aim(double rate) noexcept {
  // More than the number that would do if all reads were alike: they are not, and some wait for their turn.
  constexpr double slack = 1.4;
  constexpr double finished_in_a_second = 64;
  constexpr double waiting = 1.5;  // memory for this many times the reads in flight
  // Of what the best length would bring. Where reads wait for their turn, few long ones wait less than many short ones.
  const double enough = blocked_ ? limited_below : 0.95;
  constexpr double request_cost = 75e-6;  // seconds of a loop's time
  const auto brings = [&](std::size_t part) {
    const double bytes = std::min(slack * rate, most(part) / waiting * alone(length(part)));
    return bytes / (1 + request_cost * bytes / (length(part) * static_cast<double>(bounds_.loops)));
  };
  double best = 0;
  for (std::size_t p = bounds_.longest; p >= shortest(); p /= 2) best = std::max(best, brings(p));
  std::size_t p = bounds_.longest;
  while (p / 2 >= shortest() && (brings(p) < enough * best || rate < finished_in_a_second * length(p))) {
    p /= 2;
  }
  part_ = p;
  set_requests(std::max(fewest(), slack * rate / alone(length(p)) + 1));
}

MILLRACE_INLINE std::size_t read_controller::shortest() const noexcept {
  if (!scarce_) return bounds_.shortest;
  std::size_t least = bounds_.longest;
  for (duration since = latest_ - held_back_; since >= patient && least > bounds_.shortest; since -= patient) {
    least /= 2;
  }
  return std::max(least, bounds_.shortest);
}

MILLRACE_INLINE void read_controller::held_back(time_point now) noexcept {
  scarce_ = true;
  held_back_ = now;
  if (part_ == bounds_.longest) return;
  part_ = bounds_.longest;
  set_requests(wanted_);
  if (state_ != state::learning) hold(seen_, static_cast<double>(requests_), now);
}

MILLRACE_INLINE bool read_controller::known_by_too_little() const noexcept {
  if (state_ != state::growing && state_ != state::holding) return false;
  const double now = bytes_ / count_;
  if (length_ < 512 * 1024 && now > 2 * length_ && 2 * body_rate() < rate_) return true;
  // The first three reads came in one go, as the loop stood still: a link that all share would bring as much as then.
  // (A near store's come like that as it is fast, and the loop is the limit.)
  constexpr double near = 5e-3;
  return guessed_ && state_ == state::growing && first_ > near && body_rate() * flying_ / count_ < together_ / 4;
}

MILLRACE_INLINE void read_controller::enter(state s, time_point now) noexcept {
  state_ = s;
  intervals_ = 0;
  doubted_rate_ = 0;
  begun_ = false;
  settled_ = added(now, nanoseconds(1e9 * (first_ + length(part_) / rate_)));
}

MILLRACE_INLINE void read_controller::learn() noexcept {
  first_ = waits_ / count_;
  rate_ = body_rate();
  together_ = rate_ * flying_ / count_;
  length_ = bytes_ / count_;
  object_ = 2 * wholes_ > count_ ? bytes_ / count_ : 0;
  measured_ = true;
}

MILLRACE_INLINE bool read_controller::learn_size() noexcept {
  const bool before = object_ > 0;
  const bool now = wholes_ > (before ? 1 - limited_below : limited_below) * count_;
  object_ = now ? bytes_ / count_ : 0;
  return now != before;
}

MILLRACE_INLINE void read_controller::finished(time_point now, std::size_t bytes, duration first, duration total,
                                               std::size_t in_flight, bool whole) noexcept {
  constexpr double ns = 1e-9;
  const duration since = now - std::exchange(latest_, now);
  if (now < settled_) return;
  if (state_ != state::learning && since > duration(250'000'000)) {
    const double read = first_ + length(part_) / rate_;
    if (ns * static_cast<double>(since.count()) > 4 * read) begun_ = false;
    if (since > old) {
      enter(state::learning, now);
      settled_ = now;
      set_requests(std::min(wanted_, careful));
    }
  }
  if (!begun_) {
    begun_ = true;
    began_ = now;
    count_ = wholes_ = bytes_ = waits_ = bodies_ = flying_ = 0;
    if (state_ != state::learning) return;  // it was received before the interval
  }
  count_ += 1;
  wholes_ += whole ? 1 : 0;
  bytes_ += static_cast<double>(bytes);
  waits_ += ns * static_cast<double>(first.count());
  bodies_ += ns * static_cast<double>((total - first).count());
  flying_ += static_cast<double>(in_flight);
  if (state_ == state::learning) {
    if (count_ < 3) return;
    learn();
    // Later reads are longer than the first ones, and have a higher rate, unless these were too short to tell.
    const double more = object_ > 0 ? 8 : 4;  // small objects take little memory
    aim(more * flying_ / count_ * std::min(alone(length(part_)), 3 * alone(bytes_ / count_)));
    grown_from_ = 0;
    enter(state::growing, now);
    return;
  }
  const double elapsed = ns * static_cast<double>((now - began_).count());
  const double enough = static_cast<double>(std::clamp<std::size_t>(requests_, 16, 64));
  const double reads = state_ == state::growing ? 1 : 3;  // a step too far is judged again
  const bool sure = count_ >= enough && elapsed >= reads * (waits_ + bodies_) / count_;
  const bool long_enough = count_ >= 4 && elapsed > 1;
  if (elapsed > 0 && (sure || long_enough)) judge(bytes_ / elapsed, flying_ / count_, now);
}

MILLRACE_INLINE void read_controller::grow(double rate, double flying, time_point now) noexcept {
  const choice before{wanted_, part_, first_, rate_, false};
  const std::size_t requests = requests_;
  learn();
  aim(3 * rate);
  if (requests_ == requests && part_ == before.part) return hold(rate, flying, now);
  before_ = before;
  grown_from_ = rate;
  enter(state::growing, now);
}

MILLRACE_INLINE void read_controller::hold(double rate, double flying, time_point now) noexcept {
  held_rate_ = rate;
  held_flying_ = flying;
  enter(state::holding, now);
}

MILLRACE_INLINE void read_controller::judge(double rate, double flying, time_point now) noexcept {
  // The rate of so many reads if nothing limited them.
  const double unlimited = flying * alone(bytes_ / count_);
  seen_ = rate;
  if (state_ == state::growing || state_ == state::holding) full_ = rate < limited_below * unlimited;
  blocked_ = flying < limited_below * static_cast<double>(requests_);
  if (learn_size()) return grow(rate, flying, now);
  if (known_by_too_little()) {
    grow(rate, flying, now);
    before_.guessed = true;
    return;
  }
  switch (state_) {
    case state::learning:
      return;
    case state::growing: {
      // The first reads of all that finish are the fastest of those in flight: the wait for first bytes is longer than
      // they say. Where connections are as fast as they were, it is not the link that makes it longer.
      const bool misjudged = guessed_ && body_rate() >= limited_below * rate_;
      // A machine that stands still for a tenth of a second looks like a full link: it is measured again. Too many
      // reads for another interval cost little; too few would be kept for several. Where reads are short, intervals
      // are, too, and more reads would touch memory for nothing.
      constexpr double short_read = 20e-3;
      const bool sure = doubted_rate_ > 0 || first_ + length(part_) / rate_ < short_read;
      const bool paid = misjudged || rate >= (doubted_rate_ > 0 ? free_above : limited_below) * unlimited;
      if (!paid && !sure) {
        doubted_rate_ = rate;
        begun_ = false;
        return;
      }
      guessed_ = false;
      if (paid) return grow(rate, flying, now);
      rate = std::max(rate, doubted_rate_);
      if (rate < brought_more * grown_from_) {
        // More brought nothing: what seemed to be the store's time was the wait for something else, a busy loop, say.
        first_ = before_.first;
        rate_ = before_.rate;
        part_ = before_.part;
        set_requests(before_.wanted);
        if (before_.guessed) aim(grown_from_);
        useless_growth_ = 16;
        return hold(grown_from_, static_cast<double>(requests_), now);
      }
      aim(rate);
      return hold(rate, flying, now);
    }
    case state::holding: {
      if (useless_growth_ > 0) --useless_growth_;
      if (rate > free_above * unlimited && !at_bound() && useless_growth_ == 0) return grow(rate, flying, now);
      const bool fell = rate < limited_below * held_rate_;
      const double weight = fell ? 1 : 0.5;  // an interval counts as much as all before it
      held_rate_ += weight * (rate - held_rate_);
      held_flying_ += weight * (flying - held_flying_);
      begun_ = false;
      if (!fell && ++intervals_ < 4) return;
      intervals_ = 0;
      const double n = static_cast<double>(requests_);
      wanted_before_ = wanted_;
      more_next_ = !more_next_ || fell;
      if (more_next_ && !at_bound()) {
        set_requests(std::max(n * (fell ? more_when_fallen : more_when_held), n + 1));
        enter(state::trying_more, now);
      } else if (n > fewest() && !blocked_ && rate < free_above * unlimited) {
        set_requests(std::max(fewest(), std::min(n * fewer_when_held, n - 1)));
        enter(state::trying_fewer, now);
      }
      return;
    }
    case state::trying_more:
      if (2 * (rate / held_rate_ - 1) > std::max(least_growth, flying / held_flying_ - 1)) {
        return grow(rate, flying, now);
      }
      set_requests(wanted_before_);
      return hold(std::max(rate, held_rate_), held_flying_, now);
    case state::trying_fewer:
      if (rate > all_but_noise * held_rate_) return hold(rate, flying, now);
      set_requests(wanted_before_);
      return hold(held_rate_, held_flying_, now);
  }
}

}  // namespace millrace::detail
