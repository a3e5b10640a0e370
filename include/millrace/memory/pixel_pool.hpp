// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/pixel_buffer.hpp>

#if MILLRACE_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace millrace {

/// Recycled memory for decoded items of any size. Without it each image's pages are faulted in and zeroed by the
/// kernel, because malloc gives large pieces back that one thread took and another one frees.
///
/// acquire() takes memory of the size's class, the one that came back last, or from the heap. It never waits, so a pool
/// cannot deadlock a pipeline; what is in use is bounded by the stages that hold it. Classes are a quarter of a power
/// of two apart: a buffer occupies up to a quarter more than its size. What has come back is kept for the next ones, up
/// to `idle_bytes`; beyond, the memory that has lain there longest is freed. Buffers of up to 4 KiB, and those that
/// would not fit into `idle_bytes`, come from the heap and go back there.
///
/// Buffers may outlive the pool; its end frees what is idle, and what comes back later is freed at once. Thread-safe.
/// Under AddressSanitizer idle memory is poisoned, and so is what a buffer occupies beyond its size.
template <class = void>
class basic_pixel_pool {
 public:
  static constexpr std::size_t default_idle_bytes = std::size_t(64) << 20;

  /// 0 keeps nothing.
  explicit basic_pixel_pool(std::size_t idle_bytes = default_idle_bytes)
      : state_(std::make_shared<state>(idle_bytes)) {}
  basic_pixel_pool(const basic_pixel_pool&) = delete;
  basic_pixel_pool& operator=(const basic_pixel_pool&) = delete;
  ~basic_pixel_pool() { state_->close(); }

  /// `size` bytes with whatever was in them. Throws std::bad_alloc.
  pixel_buffer acquire(std::size_t size) {
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

  /// Bytes that wait for their next use.
  std::size_t idle_bytes() const { return state_->idle_now(); }

 private:
  struct state;

  static constexpr unsigned smallest_log = 12;
  static constexpr std::size_t smallest = std::size_t(1) << smallest_log;
  static constexpr std::size_t largest = SIZE_MAX / 4;                               // no capacity overflows below it
  static constexpr unsigned classes = (sizeof(std::size_t) * 8 - smallest_log) * 4;  // of any size at all

  /// Of the sizes in (2^k, 2^(k+1)], cut into four: which one, and its largest size.
  struct size_class {
    explicit size_class(std::size_t size) noexcept {
      const auto log = unsigned(sizeof(unsigned long long) * 8 - 1) - unsigned(__builtin_clzll(size - 1));
      const unsigned step = log - 2;
      const auto quarter = unsigned(((size - 1) >> step) & 3);
      index = (log - smallest_log) * 4 + quarter;
      capacity = (std::size_t(1) << log) + (std::size_t(quarter + 1) << step);
    }
    unsigned index;
    std::size_t capacity;
  };

  // In front of its memory, in the same allocation.
  struct piece : detail::block {
    std::shared_ptr<state> home;  // set while handed out, so that it outlives the pool
    std::uint64_t came_back = 0;  // its place in the order of all returns: its age
    piece* newer = nullptr;
    piece* older = nullptr;  // in its class, or in a chain to be freed
  };
  static constexpr std::size_t in_front = (sizeof(piece) + 63) / 64 * 64;

  struct state {
    explicit state(std::size_t idle_bytes) noexcept : limit(std::min(idle_bytes, largest)) {}

    piece* take(unsigned index) {
      std::lock_guard lock(mutex);
      piece* const p = idle[index].newest;
      if (p != nullptr) unlink(p);
      return p;
    }
    void put(piece* p) noexcept {
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
    void close() noexcept {
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
    std::size_t idle_now() {
      std::lock_guard lock(mutex);
      return idle_total;
    }

    const std::size_t limit;

   private:
    struct list {
      piece* newest = nullptr;
      piece* oldest = nullptr;
    };

    void link(piece* p) noexcept {
      list& l = idle[size_class(p->capacity).index];
      p->came_back = ++returns;
      p->newer = nullptr;
      p->older = l.newest;
      (l.newest == nullptr ? l.oldest : l.newest->newer) = p;
      l.newest = p;
      idle_total += p->capacity;
    }
    void unlink(piece* p) noexcept {
      list& l = idle[size_class(p->capacity).index];
      (p->newer == nullptr ? l.newest : p->newer->older) = p->older;
      (p->older == nullptr ? l.oldest : p->older->newer) = p->newer;
      idle_total -= p->capacity;
    }
    piece* oldest() const noexcept {
      piece* found = nullptr;
      for (const list& l : idle) {
        if (l.oldest != nullptr && (found == nullptr || l.oldest->came_back < found->came_back)) found = l.oldest;
      }
      return found;
    }

    std::mutex mutex;
    bool closed = false;
    std::uint64_t returns = 0;
    std::size_t idle_total = 0;
    list idle[classes];
  };

  static piece* make_piece(std::size_t capacity) {
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
  static void free_all(piece* gone) noexcept {
    while (gone != nullptr) {
      piece* const next = gone->older;
      gone->~piece();
      std::free(gone);
      gone = next;
    }
  }

#if MILLRACE_ASAN
  static void poison(void* memory, std::size_t size) noexcept { __asan_poison_memory_region(memory, size); }
  static void unpoison(void* memory, std::size_t size) noexcept { __asan_unpoison_memory_region(memory, size); }
#else
  static void poison(void*, std::size_t) noexcept {}
  static void unpoison(void*, std::size_t) noexcept {}
#endif

  const std::shared_ptr<state> state_;
};
using pixel_pool = basic_pixel_pool<>;

}  // namespace millrace
