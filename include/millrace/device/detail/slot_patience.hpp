// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <millrace/base/compiler.hpp>
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

  /// Whether the next stage waits for a batch now.
  void asked(bool now) { set(asked_, now); }
  /// Whether the consumer has every slot now.
  void kept(bool now) { set(kept_, now); }

  /// Throws when the time is over.
  void check(std::size_t slots) const;

 private:
  void set(bool& what, bool now);
  MILLRACE_INLINE void fire() noexcept override;
  void again(time_point due) noexcept;

  executor& executor_;
  const duration limit_;
  const stage_record* sink_;
  release_bell& bell_;
  bool asked_ = false;
  bool kept_ = false;
  bool over_ = false;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/detail/impl/slot_patience.ipp>
#endif
