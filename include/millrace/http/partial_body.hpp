// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/running_crc.hpp>
#include <millrace/memory/writable_bytes.hpp>

namespace millrace::http {

/// Memory whose first `filled` bytes have come with earlier exchanges.
class partial_body {
 public:
  writable_bytes memory;
  std::size_t filled = 0;
  running_crc crc;  ///< of these bytes and of those that have followed; of no kind unless the owner gives it one
};

}  // namespace millrace::http
