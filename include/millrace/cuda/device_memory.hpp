// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <millrace/cuda/device_guard.hpp>

namespace millrace::cuda {

/// Memory of a GPU, with one owner. Not initialised.
///
/// The owner frees it only when no enqueued work uses it any more: cudaFree may wait for the whole device, so it
/// belongs to the beginning and the end of a program, not between steps.
class device_memory {
 public:
  device_memory() noexcept = default;
  /// Throws cuda::error.
  device_memory(std::size_t size, device on) : size_(size), on_(on) {
    const device_guard current(on);
    if (size != 0) detail::check(cudaMalloc(&data_, size), "cudaMalloc");
  }
  device_memory(device_memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), on_(other.on_) {}
  device_memory& operator=(device_memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(on_, other.on_);
    return *this;
  }
  ~device_memory() {
    if (data_ != nullptr) {
      detail::give_back(on_, [this] { return cudaFree(data_); });
    }
  }

  /// A pointer for kernels and copies; the host cannot follow it.
  void* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  /// Gives the memory to the caller, who frees it with cudaFree.
  void* release() noexcept {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
  device on_;
};

}  // namespace millrace::cuda
