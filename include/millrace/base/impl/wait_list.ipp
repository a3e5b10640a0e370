// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/base/wait_list.hpp>

namespace millrace {

MILLRACE_INLINE void waiter::unlink() noexcept {
  if (next_ == nullptr) return;
  prev_->next_ = next_;
  next_->prev_ = prev_;
  prev_ = next_ = nullptr;
}

}  // namespace millrace
