// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include <millrace/cuda/device_guard.hpp>

namespace millrace::cuda::detail {

/// Memory that nobody uses, kept for the next allocation of its size. cudaFree and cudaFreeHost may wait for all work
/// on the device, so they are called where something else is wanted anyway: when no piece fits, and at the end. What is
/// kept is no more than what was in use at once. Any thread.
class spare_memory {
 public:
  using free_call = cudaError_t (*)(void*);

  spare_memory(device on, free_call call) noexcept : on_(on), free_(call) {}
  spare_memory(const spare_memory&) = delete;
  spare_memory& operator=(const spare_memory&) = delete;
  ~spare_memory() { free(pieces_); }

  /// A piece of `size` bytes; null when there is none: then the others have been freed.
  void* take(std::size_t size) noexcept {
    std::vector<piece> others;
    {
      const std::lock_guard lock(mutex_);
      for (piece& p : pieces_) {
        if (p.size != size) continue;
        void* const found = p.memory;
        p = pieces_.back();
        pieces_.pop_back();
        return found;
      }
      others.swap(pieces_);
    }
    free(others);
    return nullptr;
  }

  /// Keeps a piece that nothing uses any more, neither the host nor enqueued work.
  void keep(void* memory, std::size_t size) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      pieces_.push_back(piece{memory, size});
    } catch (...) {
      give_back(on_, [memory, this] { return free_(memory); });
    }
  }

 private:
  struct piece {
    void* memory;
    std::size_t size;
  };

  void free(const std::vector<piece>& pieces) noexcept {
    for (const piece& p : pieces) {
      give_back(on_, [&p, this] { return free_(p.memory); });
    }
  }

  const device on_;
  const free_call free_;
  std::mutex mutex_;
  std::vector<piece> pieces_;
};

}  // namespace millrace::cuda::detail
