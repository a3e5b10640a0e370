// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include <millrace/cuda/device_guard.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::cuda {

/// Page-locked host memory for slabs, which every GPU of the process copies from directly:
/// `slab_pool(slab_pool::default_slab_bytes, std::make_shared<cuda::pinned_source>())`.
///
/// Pinning costs about a millisecond per few MiB and the pages stay resident: meant for slabs that are recycled. No
/// slab may be freed while a copy from it is pending; to_device() keeps the batches it copies from, and who calls
/// cudaMemcpyAsync himself keeps the slab until an event behind the copy is done.
class pinned_source final : public slab_source {
 public:
  /// Allocated in the context of `on`, usable by all devices. The default throws cuda::error.
  explicit pinned_source(device on = device::current()) noexcept : on_(on) {}

  /// Throws cuda::error.
  void* allocate(std::size_t size) override {
    const device_guard current(on_);
    void* memory = nullptr;
    detail::check(cudaHostAlloc(&memory, size, cudaHostAllocPortable), "cudaHostAlloc");
    return memory;
  }
  void free(void* memory, std::size_t) noexcept override {
    detail::give_back(on_, [memory] { return cudaFreeHost(memory); });
  }

 private:
  device on_;
};

}  // namespace millrace::cuda
