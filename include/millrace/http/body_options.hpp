// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include <millrace/base/running_crc.hpp>
#include <millrace/base/units.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/memory/writable_bytes.hpp>

namespace millrace::http {

/// Memory whose first `filled` bytes have come with earlier exchanges.
class partial_body {
 public:
  writable_bytes memory;
  std::size_t filled = 0;
  running_crc crc;  ///< of these bytes and of those that have followed; of no kind unless the owner gives it one
};

/// Where the body goes: memory from `pool` (or, without one, from the heap), at most `window` bytes ahead of the
/// reader. Answers that are no success never go into the pool's memory.
class body_options {
 public:
  /// When set, and the answer is what was asked for (206 to a range, 200 without one), the first piece goes on behind
  /// what is filled there, and when the exchange fails or is dropped before that piece is full it is left there instead
  /// of being read. Must outlive the exchange.
  partial_body* resume = nullptr;
  std::optional<slab_pool> pool;
  std::size_t window = 2 * slab_pool::default_slab_bytes;  ///< at least one slab is always allowed
  std::size_t heap_chunk = 64 * KiB;
};

}  // namespace millrace::http
