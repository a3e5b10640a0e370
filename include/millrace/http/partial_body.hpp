// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/writable_bytes.hpp>

namespace millrace::http {

/// Memory whose first `filled` bytes have come with earlier exchanges.
class partial_body {
 public:
  writable_bytes memory;
  std::size_t filled = 0;
};

}  // namespace millrace::http
