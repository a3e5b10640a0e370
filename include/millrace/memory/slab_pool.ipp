// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/detail/block_sums.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void* plain_slab_source::allocate(std::size_t size) {
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  ::madvise(p, size, MADV_HUGEPAGE);
  return p;
}

MILLRACE_INLINE slab_pool::slab_pool(std::size_t slab_bytes)
    : slab_pool(slab_bytes, std::shared_ptr<plain_slab_source>(new plain_slab_source)) {}

MILLRACE_INLINE slab_pool::slab_pool(std::size_t slab_bytes, std::shared_ptr<slab_source> source)
    : state_(new state(slab_bytes, std::move(source))) {}

MILLRACE_INLINE slab_pool::slab::~slab() { delete own_sums; }

MILLRACE_INLINE writable_bytes slab_pool::acquire() {
  state& s = *state_;
  slab* free_slab = nullptr;
  std::uint32_t use = 0;
  {
    std::lock_guard lock(s.mutex);
    if (s.free != nullptr) {
      free_slab = s.free;
      s.free = free_slab->next_free;
      if (free_slab->half_of != nullptr) {
        if (s.free != nullptr) s.free->previous_free = nullptr;
        free_slab->half_of->free[free_slab != free_slab->half_of->parts] = false;
      }
    }
    ++s.live;
    use = ++s.uses;
    if (s.live > s.peak) s.peak = s.live;
  }
  if (free_slab == nullptr) {
    try {
      free_slab = s.wholes != nullptr ? make_halves(s) : make_slab(s);
    } catch (...) {
      std::lock_guard lock(s.mutex);
      --s.live;
      throw;
    }
  }
  if (summed_ && free_slab->own_sums == nullptr) {
    free_slab->own_sums = new (std::nothrow) detail::block_sums(s.slab_bytes);  // without memory, not summed
  }
  free_slab->sums = summed_ ? free_slab->own_sums : nullptr;
  if (free_slab->sums != nullptr) free_slab->sums->clear();
  free_slab->given.store(0, std::memory_order_relaxed);
  free_slab->home = state_;
  free_slab->use = free_slab->half_of == nullptr ? free_slab->use + 1 : use;
  free_slab->refs.store(1, std::memory_order_relaxed);
  return writable_bytes(free_slab);
}

MILLRACE_INLINE slab_pool slab_pool::halves() const { return slab_pool(std::shared_ptr<state>(new state(state_))); }

MILLRACE_INLINE slab_pool::slab* slab_pool::make_halves(state& s) {
  writable_bytes whole = slab_pool(s.wholes).acquire();
  split* const made = new split{std::move(whole), {}, {}};
  for (slab& part : made->parts) {
    part.half_of = made;
    part.data = made->whole.data() + (&part - made->parts) * static_cast<std::ptrdiff_t>(s.slab_bytes);
    part.capacity = s.slab_bytes;
    part.recycle = &recycle_half;
  }
  slab& other = made->parts[1];
  const std::lock_guard lock(s.mutex);
  made->free[1] = true;
  other.next_free = s.free;
  if (s.free != nullptr) s.free->previous_free = &other;
  s.free = &other;
  return made->parts;
}

MILLRACE_INLINE void slab_pool::recycle_half(detail::block* b) noexcept {
  auto* const self = static_cast<slab*>(b);
  const std::shared_ptr<state> home = std::move(self->home);
  split& both = *self->half_of;
  const bool second = self != both.parts;
  {
    const std::lock_guard lock(home->mutex);
    --home->live;
    slab& other = both.parts[second ? 0 : 1];
    if (!both.free[second ? 0 : 1]) {
      both.free[second ? 1 : 0] = true;
      self->previous_free = nullptr;
      self->next_free = home->free;
      if (home->free != nullptr) home->free->previous_free = self;
      home->free = self;
      return;
    }
    if (other.next_free != nullptr) other.next_free->previous_free = other.previous_free;
    (other.previous_free != nullptr ? other.previous_free->next_free : home->free) = other.next_free;
  }
  delete &both;  // the whole goes back to its pool
}

MILLRACE_INLINE slab_pool::state::~state() {
  while (slab* s = free) {
    free = s->next_free;
    destroy(s);
  }
}

MILLRACE_INLINE slab_pool::slab* slab_pool::make_slab(state& s) {
  slab* const made = new slab;
  try {
    made->data = static_cast<char*>(s.source->allocate(s.slab_bytes));
  } catch (...) {
    delete made;
    throw;
  }
  made->capacity = s.slab_bytes;
  made->recycle = [](detail::block* b) noexcept {
    auto* self = static_cast<slab*>(b);
    const std::shared_ptr<state> home = std::move(self->home);
    std::lock_guard lock(home->mutex);
    --home->live;
    self->next_free = home->free;
    home->free = self;
  };
  return made;
}

}  // namespace millrace
