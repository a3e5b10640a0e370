// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The bytes of one decoded item, with one owner: like a std::vector that does not initialise new memory and can take
/// memory from a pool (pixel_pool), to which it returns when its owner is destroyed, on any thread.
///
/// A copy is deep, with memory of its own from the heap. Moved from, it is empty. A contiguous range:
/// `std::span<std::uint8_t>(buffer)` shows it for as long as the buffer lives and is not assigned to.
class pixel_buffer {
 public:
  using value_type = std::uint8_t;

  /// Empty, without memory.
  pixel_buffer() noexcept = default;
  /// Takes over the contents of `data`, without a copy.
  template <class Allocator>
  pixel_buffer(std::vector<std::uint8_t, Allocator> data) : size_(data.size()) {
    if (size_ == 0) return;
    struct held : detail::block {
      std::vector<std::uint8_t, Allocator> bytes;
    };
    auto* const owner = new held;
    owner->bytes = std::move(data);
    owner->data = reinterpret_cast<char*>(owner->bytes.data());
    owner->capacity = owner->bytes.capacity();
    owner->recycle = [](detail::block* b) noexcept { delete static_cast<held*>(b); };
    memory_ = writable_bytes(owner);
  }
  /// The first `size` bytes of `memory`, which are not touched. For pools and decoders.
  pixel_buffer(writable_bytes memory, std::size_t size) : memory_(std::move(memory)), size_(size) {
    if (size > memory_.capacity()) detail::misused("a pixel_buffer is larger than its memory");
  }
  /// `size` bytes from the heap, not zeroed. Throws std::bad_alloc.
  static pixel_buffer allocate(std::size_t size) {
    return size == 0 ? pixel_buffer() : pixel_buffer(writable_bytes::allocate(size), size);
  }

  pixel_buffer(pixel_buffer&& other) noexcept
      : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}
  pixel_buffer(const pixel_buffer& other) : pixel_buffer(allocate(other.size_)) {
    if (size_ != 0) std::memcpy(data(), other.data(), size_);
  }
  pixel_buffer& operator=(pixel_buffer other) noexcept;
  ~pixel_buffer() = default;

  std::uint8_t* data() noexcept { return reinterpret_cast<std::uint8_t*>(memory_.data()); }
  const std::uint8_t* data() const noexcept { return reinterpret_cast<const std::uint8_t*>(memory_.data()); }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::uint8_t* begin() noexcept { return data(); }
  std::uint8_t* end() noexcept { return data() + size_; }
  const std::uint8_t* begin() const noexcept { return data(); }
  const std::uint8_t* end() const noexcept { return data() + size_; }
  std::uint8_t& operator[](std::size_t i) noexcept { return data()[i]; }
  const std::uint8_t& operator[](std::size_t i) const noexcept { return data()[i]; }

  friend bool operator==(const pixel_buffer& a, const pixel_buffer& b) noexcept {
    return a.size_ == b.size_ && (a.size_ == 0 || std::memcmp(a.data(), b.data(), a.size_) == 0);
  }

 private:
  writable_bytes memory_;
  std::size_t size_ = 0;
};

}  // namespace millrace

#if MILLRACE_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace millrace::inline MILLRACE_ABI {

/// Recycled memory for decoded items of any size. Without it each image's pages are faulted in and zeroed by the
/// kernel, because malloc gives large pieces back that one thread took and another one frees.
///
/// acquire() takes memory of the size's class, the one that came back last, or from the heap. It never waits, so a pool
/// cannot deadlock a pipeline; memory in use is bounded by the stages that hold it. Classes are a quarter of a power of
/// two apart: a buffer occupies up to a quarter more than its size. Returned memory is kept for the next buffers, up to
/// `idle_bytes`; beyond, the memory that has lain there longest is freed. Buffers of up to 4 KiB, and those that would
/// not fit into `idle_bytes`, come from the heap and go back there.
///
/// Buffers may outlive the pool; its end frees idle memory, and buffers that come back later are freed at once.
/// Thread-safe. Under AddressSanitizer idle memory is poisoned, and so is the part that a buffer occupies beyond its
/// size.
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

  /// One of four equal parts of the sizes in (2^k, 2^(k+1)], and its largest size.
  struct size_class {
    explicit size_class(std::size_t size) noexcept;
    unsigned index;
    std::size_t capacity;
  };

  // In front of its memory, in the same allocation.
  struct piece : detail::block {
    std::shared_ptr<state> home;  // set while lent, so that it outlives the pool
    std::uint64_t came_back = 0;  // its number among all returns: its age
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
#include <millrace/memory/pixel_pool.ipp>
#endif
