// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include <millrace/cuda/device.hpp>
#include <millrace/cuda/stream.hpp>
#include <millrace/device/device.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI::cuda {

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
  /// Releases the memory to the caller, who frees it with cudaFree.
  void* release() noexcept {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
  device on_;
};

/// Page-locked host memory for slabs, which every GPU of the process copies from directly:
/// `slab_pool(slab_pool::default_slab_bytes, std::make_shared<cuda::pinned_source>())`.
///
/// Pinning costs about a millisecond per few MiB and the pages stay resident: meant for slabs that are recycled. No
/// slab may be freed while a copy from it is pending; to_device() keeps the batches it copies from, and a program that
/// calls cudaMemcpyAsync itself keeps the slab until an event after the copy is done.
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

/// A GPU as the `device` concept sees it: a CUDA stream for the copies, and the memory on both sides of it.
///
/// Keeps the stream alive. Calls of different threads may overlap. The user's streams are `cudaStream_t`; the default
/// stream per thread is refused by a configuration_error: the batch that waited on one thread may be released on
/// another, where the name means another stream. The null stream is that one in a file compiled for it. A stream that
/// captures a graph is refused as well, before anything is recorded: the marks would be the graph's. Equal are those of
/// one GPU. cudaFree and cudaFreeHost may wait for all work on the device: the runtime owns the memory of pipelines,
/// and frees it at its end.
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
  std::string pci_address() const { return copies_.on().pci_address(); }

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
          "the stream captures a graph: a batch's wait() and release() belong before the capture or after it, around "
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
