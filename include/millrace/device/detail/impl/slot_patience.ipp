// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/device/detail/slot_patience.hpp>

namespace millrace::detail {

MILLRACE_INLINE void slot_patience::check(std::size_t slots) const {
  if (!over_) return;
  const std::string all = slots == 1 ? "the only slot is" : "all " + std::to_string(slots) + " slots are";
  throw configuration_error("to_device: " + all + " kept by the consumer, which has waited " +
                            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(limit_).count()) +
                            " ms for one more batch: let batches go, or raise .slots (or .slot_wait, where another "
                            "thread lets them go)");
}

MILLRACE_INLINE void slot_patience::set(bool& what, bool now) {
  if (what == now) return;
  what = now;
  over_ = false;
  if (!asked_ || !kept_ || limit_ <= duration::zero()) {
    executor_.remove_timer(*this);
  } else {
    executor_.add_timer(*this, executor_.now() + limit_);
  }
}

MILLRACE_INLINE void slot_patience::fire() noexcept {
  const time_point now = executor_.now();
  const std::int64_t since = sink_ == nullptr ? 0 : sink_->waits_since_ns.load(std::memory_order_relaxed);
  if (since == stage_record::never) return again(now + limit_);
  const time_point end = time_point(duration(since)) + limit_;
  if (end > now) return again(end);
  over_ = true;
  bell_.ring_here();  // to whoever waits for a slot: it looks once more, and then asks check()
}

MILLRACE_INLINE void slot_patience::again(time_point due) noexcept {
  try {
    executor_.add_timer(*this, due);
  } catch (...) {  // cannot be: the place of the timer that fires is still there
  }
}

}  // namespace millrace::detail
