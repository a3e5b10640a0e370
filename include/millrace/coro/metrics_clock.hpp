// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The clock of the stages' metrics. It follows the executor's clock, of which one reading takes several times as long
/// as a hop from stage to stage. So with a real clock only some *turns* are measured (a turn is the loop's work for one
/// coroutine that it resumes: at most executor::inline_budget hops).
///
/// Sampling: in a turn that is not measured the clock is stopped, and no stage is charged. One turn in `sample()` is
/// measured, drawn at random; in that one the clock runs faster, to make up for the time that it was stopped. So every
/// stage gets its share, and the shares add up. Long turns: sampling is for turns of many short steps. A stage that
/// works for long, always or sometimes, should show where it does, and is worth a reading. So a turn that took longer
/// than `short_turn` makes the clock measure all turns for a hundred times as long, and again from the last long one:
/// less than 1% of the time is charged to the wrong stage (a long turn that was not measured, to the stage that the
/// loop resumed). This does not apply if the thread was preempted in the meantime, or everything would be measured on a
/// busy machine.
class metrics_clock {
 public:
  static constexpr std::int64_t short_turn = 100'000;       ///< ns: longer than an interrupt
  static constexpr std::int64_t first_moments = 2'000'000;  ///< ns from the start of a loop that are always measured
  static constexpr unsigned usual = 32;

  /// Measures one turn in `turns`; all of them with 1.
  void sample(unsigned turns) noexcept { turns_ = turns == 0 ? 1 : turns; }

  /// Nanoseconds, as of the last reading.
  std::int64_t now_ns() const noexcept { return now_; }
  /// True if this turn is not measured: no time passes until its end.
  bool stopped() const noexcept { return stopped_; }

  /// Advances the clock to `t`, by the executor's; not while it is stopped. Returns the time that passed by this clock.
  std::int64_t read(std::int64_t t) noexcept {
    std::int64_t passed = t - last_;
    last_ = t;
    if (extra_ > 0 && t - turn_start_ <= short_turn) {
      const auto extra = static_cast<std::int64_t>(static_cast<double>(passed) * extra_);
      owed_ -= extra;
      passed += extra;
    }
    now_ += passed;
    return passed;
  }

  /// A turn begins. The time since the last reading belongs to no stage. `preemptions()` returns how often the thread
  /// has been preempted so far.
  template <class Preemptions>
  void begin_turn(std::int64_t t, Preemptions&& preemptions) noexcept {
    read(t);
    turn_start_ = t;
    if (turns_ == 1 || t < measure_until_) return;
    if (measure_until_ == 0) {
      static_cast<void>(explained(preemptions));  // those so far do not count
      measure_until_ = t + first_moments;
      return;
    }
    if (!draw()) {
      stopped_ = true;
    } else {
      drawn_ = true;
      if (typical_ > 0 && owed_ > 0) extra_ = static_cast<double>(owed_) / typical_;
    }
  }
  /// The turn ends at `t`, which was read before unless the clock is stopped. Returns the time that is still to be
  /// charged.
  template <class Preemptions>
  std::int64_t end_turn(std::int64_t t, Preemptions&& preemptions) noexcept {
    const std::int64_t took = t - turn_start_;
    std::int64_t left = 0;
    if (took > short_turn) {
      ++long_turns_;
      if (turns_ != 1 && t >= measure_until_ && !explained(preemptions)) measure_until_ = t + 100 * took;
      if (stopped_) left = took;
    } else if (stopped_) {
      owed_ += took;
    } else if (drawn_) {
      const auto length = static_cast<double>(took);
      typical_ += typical_ == 0 ? length : (length - typical_) / 16;
    }
    now_ += left;
    last_ = t;
    stopped_ = false;
    drawn_ = false;
    extra_ = 0;
    return left;
  }

 private:
  /// Draws one of each `turns_` turns in a row.
  bool draw() noexcept {
    if (++turn_ >= turns_) {
      turn_ = 0;
      random_ = random_ * 6364136223846793005U + 1442695040888963407U;
      drawn_turn_ = static_cast<unsigned>(random_ >> 33) % turns_;
    }
    return turn_ == drawn_turn_;
  }
  /// True if the long turns since the last call were long because the thread was preempted.
  template <class Preemptions>
  bool explained(Preemptions& preemptions) noexcept {
    const std::int64_t count = preemptions();
    const bool enough = count - std::exchange(preemptions_, count) >= long_turns_;
    long_turns_ = 0;
    return enough;
  }

  std::int64_t now_ = 0;
  std::int64_t last_ = 0;  // reading
  bool stopped_ = false;

  // this turn
  std::int64_t turn_start_ = 0;
  bool drawn_ = false;
  double extra_ = 0;  // by which the clock runs faster

  // sampling
  unsigned turns_ = usual;
  unsigned turn_ = 0;
  unsigned drawn_turn_ = 0;
  std::int64_t owed_ = 0;  // ns that the clock was stopped and has not made up for
  double typical_ = 0;     // ns of a turn that is drawn
  std::uint64_t random_ = 1;

  // measuring everything
  std::int64_t measure_until_ = 0;
  std::int64_t long_turns_ = 0;   // since preemptions were counted
  std::int64_t preemptions_ = 0;  // then
};

}  // namespace millrace
