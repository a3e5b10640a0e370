// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <millrace/cuda/event.hpp>
#include <millrace/device/stream_ref.hpp>

namespace millrace::cuda {

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

  /// Whether everything enqueued so far is done. Does not block.
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
