// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/detail/block.hpp>

namespace millrace::detail {

MILLRACE_INLINE block* allocate_block(std::size_t capacity) {
  if (capacity > SIZE_MAX - sizeof(block)) throw std::bad_alloc();
  void* memory = std::malloc(sizeof(block) + capacity);
  if (memory == nullptr) throw std::bad_alloc();
  auto* b = new (memory) block();
  b->data = static_cast<char*>(memory) + sizeof(block);
  b->capacity = capacity;
  b->recycle = [](block* self) noexcept {
    self->~block();
    std::free(self);
  };
  return b;
}

}  // namespace millrace::detail
