// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/retry/request_rate.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE double request_rate::recent(time_point now) const noexcept {
  return count_ * __builtin_exp(-1e-9 * static_cast<double>((now - counted_).count()));
}

MILLRACE_INLINE void request_rate::begun(time_point now) noexcept {
  if (count_ == 0) first_ = now;
  count_ = recent(now) + 1;
  counted_ = now;
  next_ = std::max(next_, now) + duration(static_cast<std::int64_t>(1e9 / limit_));
}

MILLRACE_INLINE void request_rate::refused(time_point begun, time_point now, double jitter) noexcept {
  if (begun < cut_) return;
  if (std::exchange(row_, 0) >= quiet && !limited()) return;  // it is alone
  starts_ = now - first_ < starting;
  limit_ = std::max(least, starts_ ? first_limit : limited() ? (1 - cut) * limit_ : recent(now) / 2);
  cut_ = now;
  phase_ = std::clamp(jitter, 0.0, 1.0);
  next_ = added(now, nanoseconds(1e9 * phase_ / limit_));
}

MILLRACE_INLINE time_point request_rate::next(time_point asked) const noexcept {
  return next_ > asked ? next_ : added(asked, nanoseconds(1e9 * phase_ / limit_));
}

MILLRACE_INLINE void request_rate::succeeded(time_point now) noexcept {
  ++row_;
  if (!limited()) return;
  if (limit_ < 2 * recent(now)) {
    limit_ += starts_ ? start_step : row_ > quiet ? stride : step;
  } else if (row_ > 4 * quiet) {
    limit_ = std::numeric_limits<double>::infinity();
  }
}

MILLRACE_COROUTINE_BODY task<request_gate::turn> request_gate::enter() {
  executor& ex = co_await this_executor();
  turn t;
  t.asked = t.begun = ex.now();
  semaphore::permit first;
  if (rate_.limited()) {
    first = order_.try_acquire();
    if (!first) {
      first = co_await order_.acquire();
      t.begun = ex.now();
    }
  }
  const time_point first_in_line = t.begun;
  while (rate_.limited() && t.begun < rate_.next(first_in_line)) {
    co_await sleep_until(rate_.next(first_in_line));
    t.begun = ex.now();
  }
  rate_.begun(t.begun);
  co_return t;
}

MILLRACE_INLINE std::shared_ptr<request_gate> request_gates::gate(const std::string& name) {
  if (gates_.size() >= 256) std::erase_if(gates_, [&](const auto& named) { return named.second->idle(); });
  std::shared_ptr<request_gate>& found = gates_[name];
  if (found == nullptr) found = std::make_shared<request_gate>();
  return found;
}

}  // namespace millrace::detail
