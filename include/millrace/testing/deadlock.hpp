// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace millrace::testing {

/// Nothing is ready, no timer is armed, no operation is under way, and somebody still waits.
class deadlock : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace millrace::testing
