// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <millrace/base/error.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/device/detail/release_bell.hpp>

namespace millrace::detail {

/// How long a consumer may ask for a batch while it keeps every slot. Only time can tell whether a slot comes back:
/// another thread may release one at any moment.
///
/// The time runs while the next stage asks, no slot is free or waits for the device, and, in a run(), the training
/// thread waits too: what asks before that is the run's prefetch, and a training thread may take hours for a step.
class slot_patience final : private timer_node {
 public:
  /// `limit`: zero and less are for ever. `account`: the stage's; null when none is kept.
  slot_patience(executor& ex, duration limit, const stage_record* account, release_bell& bell) noexcept
      : executor_(ex), limit_(limit), sink_(account), bell_(bell) {
    while (sink_ != nullptr && sink_->parent != nullptr) sink_ = sink_->parent;
  }
  ~slot_patience() override { executor_.remove_timer(*this); }

  /// The next stage waits for a batch, or no more.
  void asked(bool now) { set(asked_, now); }
  /// Every slot is the consumer's, or no more.
  void kept(bool now) { set(kept_, now); }

  /// Throws when the time is over.
  void check(std::size_t slots) const {
    if (!over_) return;
    const std::string all = slots == 1 ? "the only slot is" : "all " + std::to_string(slots) + " slots are";
    throw configuration_error("to_device: " + all + " kept by the consumer, which has waited " +
                              std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(limit_).count()) +
                              " ms for one more batch: let batches go, or raise .slots (or .slot_wait, where another "
                              "thread lets them go)");
  }

 private:
  void set(bool& what, bool now) {
    if (what == now) return;
    what = now;
    over_ = false;
    if (!asked_ || !kept_ || limit_ <= duration::zero()) {
      executor_.remove_timer(*this);
    } else {
      executor_.add_timer(*this, executor_.now() + limit_);
    }
  }
  void fire() noexcept override {
    const time_point now = executor_.now();
    const std::int64_t since = sink_ == nullptr ? 0 : sink_->waits_since_ns.load(std::memory_order_relaxed);
    if (since == stage_record::never) return again(now + limit_);
    const time_point end = time_point(duration(since)) + limit_;
    if (end > now) return again(end);
    over_ = true;
    bell_.ring_here();  // to whoever waits for a slot: it looks once more, and then asks check()
  }
  void again(time_point due) noexcept {
    try {
      executor_.add_timer(*this, due);
    } catch (...) {  // cannot be: the place of the timer that fires is still there
    }
  }

  executor& executor_;
  const duration limit_;
  const stage_record* sink_;
  release_bell& bell_;
  bool asked_ = false;
  bool kept_ = false;
  bool over_ = false;
};

}  // namespace millrace::detail
