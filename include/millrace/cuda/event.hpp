// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/cuda/device_guard.hpp>

namespace millrace::cuda {

/// A mark in a stream, without timing (which would make recording it slower). One owner. A host thread that waits for
/// it sleeps (cudaEventBlockingSync): the processor is the pipeline's.
///
/// Recording it again moves the mark; who waited for the former one still does. Destroying it while pending is fine:
/// the runtime lets go of it when the mark is reached. It belongs to the device it was made on and can be recorded on
/// that device's streams only; streams of every device can wait for it.
class MILLRACE_CUDA_DEFAULT_STREAM event {
 public:
  /// Throws cuda::error.
  explicit event(device on) : on_(on) {
    const device_guard current(on);
    detail::check(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming | cudaEventBlockingSync),
                  "cudaEventCreateWithFlags");
  }
  event(event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), on_(other.on_) {}
  event& operator=(event&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(on_, other.on_);
    return *this;
  }
  ~event() {
    if (handle_ != nullptr) {
      detail::give_back(on_, [this] { return cudaEventDestroy(handle_); });
    }
  }

  /// Marks the end of what is enqueued on `stream` now.
  void record(cudaStream_t stream) {
    const device_guard current(on_);
    detail::check(cudaEventRecord(handle_, stream), "cudaEventRecord");
  }

  /// Whether the mark is reached; true when never recorded. Does not block. Throws cuda::error, also for errors of
  /// the work before the mark.
  bool ready() const {
    const device_guard current(on_);
    return detail::done(cudaEventQuery(handle_), "cudaEventQuery");
  }

  /// Blocks the calling thread until the mark is reached.
  void synchronize() const {
    const device_guard current(on_);
    detail::check(cudaEventSynchronize(handle_), "cudaEventSynchronize");
  }

  device on() const noexcept { return on_; }
  /// The native handle, owned by this object.
  cudaEvent_t get() const noexcept { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
  device on_;
};

}  // namespace millrace::cuda
