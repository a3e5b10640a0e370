// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <millrace/cuda/device.hpp>
#include <millrace/device/device.hpp>

namespace millrace::inline MILLRACE_ABI::cuda {

/// A mark in a stream, without timing (which would make recording it slower). One owner. A host thread that waits for
/// it sleeps (cudaEventBlockingSync): the processor is the pipeline's.
///
/// Recording it again moves the mark; waits for the former one are not affected. Destroying it while pending is fine:
/// the runtime frees it when the mark is reached. It belongs to the device it was made on and can be recorded on that
/// device's streams only; streams of every device can wait for it.
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

  /// Marks the end of the work enqueued on `stream` now.
  void record(cudaStream_t stream) {
    const device_guard current(on_);
    detail::check(cudaEventRecord(handle_, stream), "cudaEventRecord");
  }

  /// True if the mark is reached, or was never recorded. Does not block. Throws cuda::error, also for errors of the
  /// work before the mark.
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

/// A CUDA stream: a queue of work on one device. A copy is the same stream; the last one destroys it: the work enqueued
/// still runs.
///
/// The streams made here do not synchronise with the legacy default stream (cudaStreamNonBlocking), so copies overlap
/// with kernels whatever stream those run on.
class MILLRACE_CUDA_DEFAULT_STREAM stream {
 public:
  /// A new stream on `on`. Throws cuda::error.
  explicit stream(device on = device::current()) : state_(std::make_shared<owned>(on)) {}

  /// A view of a stream that the program owns and keeps alive as long as the view and everything made from it.
  static stream borrow(cudaStream_t handle, device on) { return stream(std::make_shared<state>(handle, on)); }

  cudaStream_t get() const noexcept { return state_->handle; }
  device on() const noexcept { return state_->on; }
  operator stream_ref() const noexcept { return stream_ref(get()); }

  /// Work enqueued on this stream from now on starts after `e`, as last recorded. Does not block.
  void wait(const event& e) const {
    const device_guard current(on());
    detail::check(cudaStreamWaitEvent(get(), e.get(), 0), "cudaStreamWaitEvent");
  }

  /// True if everything enqueued so far is done. Does not block.
  bool idle() const {
    const device_guard current(on());
    return detail::done(cudaStreamQuery(get()), "cudaStreamQuery");
  }

  /// Blocks the calling thread until everything enqueued so far is done.
  void synchronize() const {
    const device_guard current(on());
    detail::check(cudaStreamSynchronize(get()), "cudaStreamSynchronize");
  }

 private:
  struct state {
    state(cudaStream_t h, device d) noexcept : handle(h), on(d) {}
    cudaStream_t handle;
    device on;
  };
  struct owned : state {
    explicit owned(device d) : state(create(d), d) {}
    owned(const owned&) = delete;
    owned& operator=(const owned&) = delete;
    ~owned() {
      detail::give_back(on, [this] { return cudaStreamDestroy(handle); });
    }

    static cudaStream_t create(device d) {
      const device_guard current(d);
      cudaStream_t handle = nullptr;
      detail::check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      return handle;
    }
  };

  explicit stream(std::shared_ptr<state> s) noexcept : state_(std::move(s)) {}

  std::shared_ptr<state> state_;
};

}  // namespace millrace::cuda
