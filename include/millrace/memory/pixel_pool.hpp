// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

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
class pixel_pool {
 public:
  static constexpr std::size_t default_idle_bytes = std::size_t(64) << 20;

  /// 0 keeps nothing.
  explicit pixel_pool(std::size_t idle_bytes = default_idle_bytes);
  pixel_pool(const pixel_pool&) = delete;
  pixel_pool& operator=(const pixel_pool&) = delete;
  ~pixel_pool() { state_->close(); }

  /// `size` bytes with whatever was in them. Throws std::bad_alloc.
  pixel_buffer acquire(std::size_t size);

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
    explicit size_class(std::size_t size) noexcept;
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

    piece* take(unsigned index);
    void put(piece* p) noexcept;
    void close() noexcept;
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

    void link(piece* p) noexcept;
    void unlink(piece* p) noexcept;
    piece* oldest() const noexcept;

    std::mutex mutex;
    bool closed = false;
    std::uint64_t returns = 0;
    std::size_t idle_total = 0;
    list idle[classes];
  };

  static piece* make_piece(std::size_t capacity);
  static void free_all(piece* gone) noexcept;

#if MILLRACE_ASAN
  static void poison(void* memory, std::size_t size) noexcept { __asan_poison_memory_region(memory, size); }
  static void unpoison(void* memory, std::size_t size) noexcept { __asan_unpoison_memory_region(memory, size); }
#else
  static void poison(void*, std::size_t) noexcept {}
  static void unpoison(void*, std::size_t) noexcept {}
#endif

  const std::shared_ptr<state> state_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/memory/impl/pixel_pool.ipp>
#endif
