// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace millrace::detail {

/// A reference-counted run of memory: the owner behind `bytes` and `buffer`. The last reference calls recycle(), on
/// whatever thread it is dropped.
struct block {
  std::atomic<std::uint32_t> refs{1};
  std::uint32_t use = 0;  // counts how often a pool has handed it out
  char* data = nullptr;
  std::size_t capacity = 0;
  void (*recycle)(block*) noexcept = nullptr;

  void add_ref() noexcept { refs.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1) recycle(this);
  }
};

/// One allocation holding the block and its payload.
block* allocate_block(std::size_t capacity);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/memory/detail/impl/block.ipp>
#endif
