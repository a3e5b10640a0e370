// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/retry/detail/cubic_rate.hpp>

namespace millrace::detail {

MILLRACE_INLINE double cubic_rate::throttled(double rate, double now) noexcept {
  met_at_rate_ = rate;
  met_at_ = now;
  return rate * beta;
}

}  // namespace millrace::detail
