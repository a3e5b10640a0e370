// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Memory for a slab pool: plain pages, or page-locked ones for a device. Called on any thread; both calls are rare (a
/// slab is allocated once and recycled).
class slab_source {
 public:
  virtual ~slab_source() = default;
  /// `size` bytes, aligned to a page. Throws std::bad_alloc.
  virtual void* allocate(std::size_t size) = 0;
  virtual void free(void* memory, std::size_t size) noexcept = 0;
};

/// Anonymous pages, huge if the kernel gives them. The kernel allocates each page when it is first written: an
/// unused page takes no memory, and a slab that has been filled once causes no more page faults.
class plain_slab_source final : public slab_source {
 public:
  MILLRACE_INLINE void* allocate(std::size_t size) override;
  void free(void* memory, std::size_t size) noexcept override { ::munmap(memory, size); }
};

/// Recycled memory of one size (a slab, by default 8 MiB: one part of a ranged GET).
///
/// acquire() returns a free slab or allocates one: it never waits, so a pool cannot deadlock a pipeline. The stages
/// that hold slabs bound how many exist at once; peak() is how many that were. A copy of the pool is the same pool.
/// Slabs may outlive every copy; they are then freed when dropped. Thread-safe.
class slab_pool {
 public:
  static constexpr std::size_t default_slab_bytes = std::size_t(8) << 20;

  /// Slabs of a plain_slab_source.
  explicit slab_pool(std::size_t slab_bytes = default_slab_bytes);
  slab_pool(std::size_t slab_bytes, std::shared_ptr<slab_source> source);

  /// A pool of slabs half as long, which are the halves of this pool's slabs: one is cut in two when no half is free,
  /// and is whole again when both are. So shorter reads use memory that longer ones have touched. Every call makes
  /// another pool.
  slab_pool halves() const;

  /// This pool, with sums: whatever fills one of its slabs computes the CRC-32C of each block, if it says so
  /// (writable_bytes::note_filled()), and bytes::crc32c() is cheap then.
  slab_pool summed() const {
    slab_pool same = *this;
    same.summed_ = true;
    return same;
  }
  /// This pool, for bytes that are not compared with the checksum of their object: a store need not compute that of a
  /// range while the bytes arrive (storage::part::crc).
  slab_pool uncompared() const {
    slab_pool same = *this;
    same.compared_ = false;
    return same;
  }
  bool is_compared() const noexcept { return compared_; }

  /// A slab to write into; it comes back to the pool when the buffer and every slice of it are gone.
  writable_bytes acquire();

  /// True if a slab is free, for the moment: acquire() need not allocate one.
  bool has_free() const {
    std::lock_guard lock(state_->mutex);
    return state_->free != nullptr;
  }
  /// Size of one slab in bytes.
  std::size_t slab_bytes() const noexcept { return state_->slab_bytes; }
  /// True if `length` bytes go into a slab. An eighth of one and less gets memory of its own size: the slab would be
  /// mostly empty.
  bool worth_a_slab(std::size_t length) const noexcept { return length > slab_bytes() / 8; }
  /// Slabs in use.
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
  struct split;
  struct slab : detail::block {
    slab() = default;
    slab(const slab&) = delete;
    slab& operator=(const slab&) = delete;
    ~slab();
    std::shared_ptr<state> home;  // set while lent, so that the memory outlives the pool's handles
    slab* next_free = nullptr;
    slab* previous_free = nullptr;  // of halves alone
    split* half_of = nullptr;
    detail::block_sums* own_sums = nullptr;  // made when they are first wanted
  };
  /// A slab of another pool that is cut in two.
  struct split {
    writable_bytes whole;
    slab parts[2];
    bool free[2] = {false, false};
  };
  struct state {
    state(std::size_t bytes, std::shared_ptr<slab_source> from) : slab_bytes(bytes), source(std::move(from)) {}
    explicit state(std::shared_ptr<state> of) : slab_bytes(of->slab_bytes / 2), wholes(std::move(of)) {}
    ~state();
    void destroy(slab* s) noexcept {
      source->free(s->data, s->capacity);
      delete s;
    }
    const std::size_t slab_bytes;
    const std::shared_ptr<slab_source> source;
    const std::shared_ptr<state> wholes;  // the pool whose slabs are cut; null: this one has a source
    std::mutex mutex;
    slab* free = nullptr;  // the one that came back last: its memory is warm
    std::size_t live = 0;
    std::size_t peak = 0;
    std::uint32_t uses = 0;  // tells apart halves that are at one address, one after the other
  };

  explicit slab_pool(std::shared_ptr<state> s) noexcept : state_(std::move(s)) {}

  static slab* make_slab(state& s);
  /// Cuts a slab: one half is returned, the other one is free.
  static slab* make_halves(state& s);
  static void recycle_half(detail::block* b) noexcept;

  std::shared_ptr<state> state_;
  bool summed_ = false;
  bool compared_ = true;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/memory/slab_pool.ipp>
#endif
