// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstdint>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/promise_base.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The metrics of one generator: its promise reports each hop to the generator's stage_record, and to that of its
/// consumer. A generator has a record of its own if it has a name, as stages have; without one it counts as part of its
/// consumer's stage, and nothing is reported.
///
/// A hop in a turn that is measured switches the executor's clock to the stage and back, and reports when the generator
/// was asked and when it answered. In a turn that is not (see metrics_clock) times would only grow by zeros: there an
/// item that comes at once is counted, and no more.
///
/// Every call gets the promise that it belongs to, bound to its context by then.
class hop_metrics {
 public:
  // ---- before the first next()

  /// Makes the generator a stage of its own, with a line in the stage table. Texts are literals.
  void set_name(const char* name) noexcept {
    name_ = name;
    named_ns_ = monotonic_ns();
  }
  void set_advice(const char* advice) noexcept { advice_ = advice; }
  const char* name() const noexcept { return name_; }

  /// The record of a generator that a coroutine of the stage `consumer` asks for the first time.
  stage_record* record_for(stage_record* consumer) const {
    if (consumer == nullptr || name_ == nullptr) return consumer;
    return consumer->owner->record_for(name_, advice_, consumer, named_ns_);
  }

  // ---- at each hop, if metrics are kept at all

  void asked_by(const promise_base& consumer) noexcept { consumer_ = consumer.stage(); }
  /// True if the generator has a record of its own, beside its consumer's.
  bool reports(const promise_base& self) const noexcept {
    return self.stage() != nullptr && self.stage() != consumer_;
  }
  /// Resumes the generator's coroutine, which was asked for an item.
  template <class Generator>
  void resume(Generator& self, std::coroutine_handle<> coroutine) {
    if (!reports(self)) return coroutine.resume();
    executor& ex = self.get_executor();
    if (!ex.clock_stopped() || !has_yielded_) return resume_measured(self, coroutine);
    coroutine.resume();
    if (MILLRACE_UNLIKELY(!self.has_item())) begin_answer(self, ex.charged_ns());
  }
  /// The generator has answered: with an item of so many bytes, or (less than 0) with its end.
  MILLRACE_ALWAYS_INLINE void answered(promise_base& self, std::int64_t bytes) noexcept {
    if (is_asked_) {
      end_answer(self, bytes);
    } else if (bytes >= 0) {
      self.stage()->counted(bytes);  // it came at once, in a turn that is not measured
    }                                // else the end was reported before
  }

  // ---- when an item does not come at once

  /// The consumer has suspended. `asked_now`: the generator has not been resumed yet, as the inline budget was spent.
  void consumer_waits(promise_base& self, bool asked_now) noexcept {
    if (!reports(self) || consumer_waits_) return;
    const std::int64_t t = self.get_executor().charge_current();
    if (asked_now) {
      begin_answer(self, t);
    } else {
      begin_wait(t);
    }
  }
  /// The consumer has dropped its next().
  void consumer_left(promise_base& self) noexcept {
    if (consumer_waits_) end_wait(self.get_executor().charge_current());
  }
  /// The generator is destroyed.
  void dropped(promise_base& self) noexcept {
    if (is_asked_ || has_yielded_) {
      self.stage()->dropped(self.get_executor().charge_current(), is_asked_, has_yielded_);
    }
  }

 private:
  MILLRACE_NOINLINE void resume_measured(promise_base& self, std::coroutine_handle<> coroutine) {
    executor& ex = self.get_executor();
    stage_record* const before = ex.enter(self.stage());
    begin_answer(self, ex.charged_ns());
    coroutine.resume();
    ex.enter(before);
  }
  void begin_answer(promise_base& self, std::int64_t t) noexcept {
    begin_wait(t);
    self.stage()->asked(t, has_yielded_);
    is_asked_ = true;
    has_yielded_ = false;
  }
  MILLRACE_NOINLINE void end_answer(promise_base& self, std::int64_t bytes) noexcept {
    const std::int64_t t = self.get_executor().charged_ns();
    is_asked_ = false;
    has_yielded_ = bytes >= 0;
    self.stage()->answered(t, bytes);
    if (consumer_waits_) end_wait(t);
  }
  void begin_wait(std::int64_t t) noexcept {
    if (consumer_ == nullptr) return;
    consumer_->wait_began(t);
    consumer_waits_ = true;
  }
  void end_wait(std::int64_t t) noexcept {
    consumer_->wait_ended(t);
    consumer_waits_ = false;
  }

  const char* name_ = nullptr;
  const char* advice_ = nullptr;
  std::int64_t named_ns_ = 0;
  stage_record* consumer_ = nullptr;
  bool is_asked_ = false;        // as the record knows: asked, and not answered
  bool has_yielded_ = false;     // an item, and not asked since
  bool consumer_waits_ = false;  // likewise
};

}  // namespace millrace::detail
