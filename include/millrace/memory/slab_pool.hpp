// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>

#include <sys/mman.h>

#include <millrace/base/compiler.hpp>
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

/// Anonymous pages, huge where the kernel gives them. The kernel makes each when the first byte lands on it: what
/// nobody fills takes no memory, and a slab that has been filled once makes no more page faults.
class plain_slab_source final : public slab_source {
 public:
  MILLRACE_INLINE void* allocate(std::size_t size) override;
  void free(void* memory, std::size_t size) noexcept override { ::munmap(memory, size); }
};

/// Recycled memory of one size (a slab, by default 8 MiB: one part of a ranged GET).
///
/// acquire() hands out a free slab or allocates one: it never waits, so a pool cannot deadlock a pipeline. How many
/// slabs exist at once is bounded by the stages that hold them; peak() tells how many that were. A copy of the pool is
/// the same pool. Slabs may outlive every copy; they are then freed when dropped. Thread-safe.
class slab_pool {
 public:
  static constexpr std::size_t default_slab_bytes = std::size_t(8) << 20;

  /// Slabs of a plain_slab_source.
  explicit slab_pool(std::size_t slab_bytes = default_slab_bytes);
  slab_pool(std::size_t slab_bytes, std::shared_ptr<slab_source> source);

  /// A slab to write into; it comes back to the pool when the buffer and every slice of it are gone.
  writable_bytes acquire();

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
    ~state();
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

  static slab* make_slab(state& s);

  std::shared_ptr<state> state_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/memory/impl/slab_pool.ipp>
#endif
