// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/pixel_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE pixel_buffer& pixel_buffer::operator=(pixel_buffer other) noexcept {
  memory_ = std::move(other.memory_);
  size_ = other.size_;
  return *this;
}

MILLRACE_INLINE pixel_pool::pixel_pool(std::size_t idle_bytes) : state_(new state(idle_bytes)) {}

MILLRACE_INLINE pixel_buffer pixel_pool::acquire(std::size_t size) {
  if (size <= smallest || size > state_->limit) return pixel_buffer::allocate(size);
  const size_class c(size);
  if (c.capacity > state_->limit) return pixel_buffer::allocate(size);
  piece* p = state_->take(c.index);
  if (p == nullptr) p = make_piece(c.capacity);
  p->refs.store(1, std::memory_order_relaxed);
  p->home = state_;
  unpoison(p->data, size);
  return pixel_buffer(writable_bytes(p), size);
}

MILLRACE_INLINE pixel_pool::size_class::size_class(std::size_t size) noexcept {
  const auto log = unsigned(sizeof(unsigned long long) * 8 - 1) - unsigned(__builtin_clzll(size - 1));
  const unsigned step = log - 2;
  const auto quarter = unsigned(((size - 1) >> step) & 3);
  index = (log - smallest_log) * 4 + quarter;
  capacity = (std::size_t(1) << log) + (std::size_t(quarter + 1) << step);
}

MILLRACE_INLINE pixel_pool::piece* pixel_pool::state::take(unsigned index) {
  std::lock_guard lock(mutex);
  piece* const p = idle[index].newest;
  if (p != nullptr) unlink(p);
  return p;
}

MILLRACE_INLINE void pixel_pool::state::put(piece* p) noexcept {
  piece* gone = nullptr;
  {
    std::lock_guard lock(mutex);
    if (closed) {
      p->older = nullptr;
      gone = p;
    } else {
      link(p);
      while (idle_total > limit) {
        piece* const old = oldest();
        unlink(old);
        old->older = gone;
        gone = old;
      }
    }
  }
  free_all(gone);  // not under the lock: the kernel takes its time
}

MILLRACE_INLINE void pixel_pool::state::close() noexcept {
  piece* gone = nullptr;
  {
    std::lock_guard lock(mutex);
    closed = true;
    for (list& l : idle) {
      while (piece* const p = l.newest) {
        unlink(p);
        p->older = gone;
        gone = p;
      }
    }
  }
  free_all(gone);
}

MILLRACE_INLINE void pixel_pool::state::link(piece* p) noexcept {
  list& l = idle[size_class(p->capacity).index];
  p->came_back = ++returns;
  p->newer = nullptr;
  p->older = l.newest;
  (l.newest == nullptr ? l.oldest : l.newest->newer) = p;
  l.newest = p;
  idle_total += p->capacity;
}

MILLRACE_INLINE void pixel_pool::state::unlink(piece* p) noexcept {
  list& l = idle[size_class(p->capacity).index];
  (p->newer == nullptr ? l.newest : p->newer->older) = p->older;
  (p->older == nullptr ? l.oldest : p->older->newer) = p->newer;
  idle_total -= p->capacity;
}

MILLRACE_INLINE pixel_pool::piece* pixel_pool::state::oldest() const noexcept {
  piece* found = nullptr;
  for (const list& l : idle) {
    if (l.oldest != nullptr && (found == nullptr || l.oldest->came_back < found->came_back)) found = l.oldest;
  }
  return found;
}

MILLRACE_INLINE pixel_pool::piece* pixel_pool::make_piece(std::size_t capacity) {
  void* const memory = std::malloc(in_front + capacity);
  if (memory == nullptr) throw std::bad_alloc();
  auto* const p = new (memory) piece();
  p->data = static_cast<char*>(memory) + in_front;
  p->capacity = capacity;
  p->recycle = [](detail::block* b) noexcept {
    auto* const back = static_cast<piece*>(b);
    const std::shared_ptr<state> home = std::move(back->home);
    poison(back->data, back->capacity);
    home->put(back);
  };
  poison(p->data, p->capacity);
  return p;
}

MILLRACE_INLINE void pixel_pool::free_all(piece* gone) noexcept {
  while (gone != nullptr) {
    piece* const next = gone->older;
    gone->~piece();
    std::free(gone);
    gone = next;
  }
}

}  // namespace millrace
