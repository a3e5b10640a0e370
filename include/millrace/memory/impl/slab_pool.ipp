// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace {

MILLRACE_INLINE void* plain_slab_source::allocate(std::size_t size) {
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  ::madvise(p, size, MADV_HUGEPAGE);
  return p;
}

MILLRACE_INLINE slab_pool::slab_pool(std::size_t slab_bytes)
    : slab_pool(slab_bytes, std::make_shared<plain_slab_source>()) {}

MILLRACE_INLINE slab_pool::slab_pool(std::size_t slab_bytes, std::shared_ptr<slab_source> source)
    : state_(std::make_shared<state>(slab_bytes, std::move(source))) {}

MILLRACE_INLINE writable_bytes slab_pool::acquire() {
  state& s = *state_;
  slab* free_slab = nullptr;
  {
    std::lock_guard lock(s.mutex);
    if (s.free != nullptr) {
      free_slab = s.free;
      s.free = free_slab->next_free;
    }
    ++s.live;
    if (s.live > s.peak) s.peak = s.live;
  }
  if (free_slab == nullptr) {
    try {
      free_slab = make_slab(s);
    } catch (...) {
      std::lock_guard lock(s.mutex);
      --s.live;
      throw;
    }
  }
  free_slab->home = state_;
  ++free_slab->use;
  free_slab->refs.store(1, std::memory_order_relaxed);
  return writable_bytes(free_slab);
}

MILLRACE_INLINE slab_pool::state::~state() {
  while (slab* s = free) {
    free = s->next_free;
    destroy(s);
  }
}

MILLRACE_INLINE slab_pool::slab* slab_pool::make_slab(state& s) {
  auto made = std::make_unique<slab>();
  made->data = static_cast<char*>(s.source->allocate(s.slab_bytes));
  made->capacity = s.slab_bytes;
  made->recycle = [](detail::block* b) noexcept {
    auto* self = static_cast<slab*>(b);
    const std::shared_ptr<state> home = std::move(self->home);
    std::lock_guard lock(home->mutex);
    --home->live;
    self->next_free = home->free;
    home->free = self;
  };
  return made.release();
}

}  // namespace millrace
