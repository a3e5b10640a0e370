// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <millrace/cuda/device_memory.hpp>
#include <millrace/cuda/event.hpp>
#include <millrace/cuda/pinned_source.hpp>
#include <millrace/cuda/stream.hpp>
#include <millrace/device/device.hpp>

namespace millrace::cuda {

/// A GPU as the `device` concept sees it: a CUDA stream for the copies, and the memory on both sides of it.
///
/// Keeps the stream alive. Calls of different threads may overlap. The user's streams are `cudaStream_t`; the default
/// stream per thread is refused by a configuration_error: the batch that waited on one thread may be released on
/// another, where the name means another stream. The null stream is that one in a file compiled for it. A stream that
/// captures a graph is refused as well, before anything is recorded: the marks would be the graph's. Equal are those of
/// one GPU. cudaFree and cudaFreeHost may wait for all work on the device: what pipelines use is the runtime's, and
/// freed at its end.
class MILLRACE_CUDA_DEFAULT_STREAM stream_device {
 public:
  using event_type = event;

  explicit stream_device(stream copies) noexcept : copies_(std::move(copies)) {}

  void* allocate_pinned(std::size_t n) const { return pinned_source(copies_.on()).allocate(n); }
  void free_pinned(void* memory, std::size_t n) const noexcept { pinned_source(copies_.on()).free(memory, n); }
  void* allocate_device(std::size_t n) const { return device_memory(n, copies_.on()).release(); }
  void free_device(void* memory, std::size_t) const noexcept {
    detail::give_back(copies_.on(), [memory] { return cudaFree(memory); });
  }

  event_type make_event() const { return event(copies_.on()); }
  void copy_to_device(void* to, const void* from, std::size_t n) const {
    const device_guard current(copies_.on());
    detail::check(cudaMemcpyAsync(to, from, n, cudaMemcpyHostToDevice, copies_.get()), "cudaMemcpyAsync");
  }
  void record(event_type& e) const { e.record(copies_.get()); }
  void record(event_type& e, stream_ref s) const {
    if (is_per_thread(s)) {  // refused below; it may use the slot all the same, and is never marked
      const device_guard current(copies_.on());
      detail::ignore(cudaStreamSynchronize(s.as<CUstream_st>()));
    }
    e.record(usable(s));
  }
  void wait(stream_ref s, const event_type& e) const {
    const device_guard current(copies_.on());
    detail::check(cudaStreamWaitEvent(usable(s), e.get(), 0), "cudaStreamWaitEvent");
  }
  bool query(const event_type& e) const { return e.ready(); }
  void synchronize(const event_type& e) const { e.synchronize(); }
  void synchronize(stream_ref s) const {
    const device_guard current(copies_.on());
    detail::check(cudaStreamSynchronize(usable(s)), "cudaStreamSynchronize");
  }
  std::string name() const { return copies_.on().name(); }

  const stream& copies() const noexcept { return copies_; }
  friend bool operator==(const stream_device& a, const stream_device& b) noexcept {
    return a.copies_.on() == b.copies_.on();
  }

 private:
  static bool is_per_thread(stream_ref s) {
    cudaStream_t const stream = s.as<CUstream_st>();
#ifdef __CUDART_API_PER_THREAD_DEFAULT_STREAM
    if (stream == nullptr) return true;
#endif
    return stream == cudaStreamPerThread;
  }
  static cudaStream_t native(stream_ref s) {
    if (is_per_thread(s)) {
      throw configuration_error(
          "the default stream per thread was passed, which is another one on every thread: pass a stream of your own");
    }
    return s.as<CUstream_st>();
  }
  /// A stream whose work happens: not one that captures.
  cudaStream_t usable(stream_ref s) const {
    cudaStream_t const stream = native(s);
    const device_guard current(copies_.on());
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t code = cudaStreamIsCapturing(stream, &status);
    // Implicit: the default stream, while a stream captures that waits for it.
    if (code == cudaErrorStreamCaptureImplicit || (code == cudaSuccess && status != cudaStreamCaptureStatusNone)) {
      detail::ignore(code);
      throw configuration_error(
          "the stream captures a graph: a batch's wait() and release() belong before the capture or behind it, around "
          "the launch of the graph");
    }
    detail::check(code, "cudaStreamIsCapturing");
    return stream;
  }

  stream copies_;
};

static_assert(millrace::device<stream_device>);

/// Lets a stream stand for its device: `to_device(copies)` reads like `to_device(cuda::stream_device(copies))`.
inline stream_device as_device(stream copies) noexcept { return stream_device(std::move(copies)); }
}  // namespace millrace::cuda
