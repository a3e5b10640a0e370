// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>

#include <sys/mman.h>

#include <millrace/memory/writable_bytes.hpp>

namespace millrace {

/// Where a slab pool gets its memory: plain pages, or page-locked ones for a device. Called on any thread; both calls
/// are rare (a slab is allocated once and recycled).
class slab_source {
 public:
  virtual ~slab_source() = default;
  /// `size` bytes, aligned to a page. Throws std::bad_alloc.
  virtual void* allocate(std::size_t size) = 0;
  virtual void free(void* memory, std::size_t size) noexcept = 0;
};

/// Anonymous pages, huge where the kernel gives them. The kernel makes each when the first byte lands on it: what nobody
/// fills takes no memory, and a slab that has been filled once makes no more page faults.
class plain_slab_source final : public slab_source {
 public:
  void* allocate(std::size_t size) override {
    void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    ::madvise(p, size, MADV_HUGEPAGE);
    return p;
  }
  void free(void* memory, std::size_t size) noexcept override { ::munmap(memory, size); }
};

/// Recycled memory of one size (a slab, by default 8 MiB: one part of a ranged GET).
///
/// acquire() hands out a free slab or allocates one: it never waits, so a pool cannot deadlock a pipeline. How many
/// slabs exist at once is bounded by the stages that hold them; peak() tells how many that were. A copy of the pool is
/// the same pool. Slabs may outlive every copy; they are then freed when dropped. Thread-safe.
template <class = void>
class basic_slab_pool {
 public:
  static constexpr std::size_t default_slab_bytes = std::size_t(8) << 20;

  explicit basic_slab_pool(std::size_t slab_bytes = default_slab_bytes,
                           std::shared_ptr<slab_source> source = std::make_shared<plain_slab_source>())
      : state_(std::make_shared<state>(slab_bytes, std::move(source))) {}

  /// A slab to write into; it comes back to the pool when the buffer and every slice of it are gone.
  writable_bytes acquire() {
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

  /// Whether a slab is free, for the moment: acquire() need not allocate one.
  bool has_free() const {
    std::lock_guard lock(state_->mutex);
    return state_->free != nullptr;
  }
  /// Size of one slab in bytes.
  std::size_t slab_bytes() const noexcept { return state_->slab_bytes; }
  /// Slabs handed out and not yet back.
  std::size_t live() const {
    std::lock_guard lock(state_->mutex);
    return state_->live;
  }
  /// The most slabs that were out at once.
  std::size_t peak() const {
    std::lock_guard lock(state_->mutex);
    return state_->peak;
  }

 private:
  struct state;
  struct slab : detail::block {
    std::shared_ptr<state> home;  // set while handed out, so that the memory outlives the pool's handles
    slab* next_free = nullptr;
  };
  struct state {
    state(std::size_t bytes, std::shared_ptr<slab_source> from) : slab_bytes(bytes), source(std::move(from)) {}
    ~state() {
      while (slab* s = free) {
        free = s->next_free;
        destroy(s);
      }
    }
    void destroy(slab* s) noexcept {
      source->free(s->data, s->capacity);
      delete s;
    }
    const std::size_t slab_bytes;
    const std::shared_ptr<slab_source> source;
    std::mutex mutex;
    slab* free = nullptr;  // the one that came back last: its memory is warm
    std::size_t live = 0;
    std::size_t peak = 0;
  };

  static slab* make_slab(state& s) {
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

  std::shared_ptr<state> state_;
};
using slab_pool = basic_slab_pool<>;

}  // namespace millrace
