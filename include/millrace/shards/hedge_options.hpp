// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/clock.hpp>

namespace millrace {

/// When a part that is slow to come is asked for a second time.
struct hedge_options {
  double factor = 3;                       ///< times the 95th percentile of recent parts of its size; at least 1
  duration least = duration(100'000'000);  ///< ... and not before this
  double extra = 0.05;                     ///< second requests per request, at most
};

}  // namespace millrace
