// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The functions of the CUDA runtime that the library calls, over the model of world.hpp. Signatures are those of the
// toolkit's own header, which the compiler checks.

#include <cstring>
#include <map>
#include <utility>

#include "tests/cuda/blocks.hpp"
#include "tests/fake_cuda/world.hpp"

namespace {

using millrace::fake_cuda::event;
using millrace::fake_cuda::kernel_memory;
using millrace::fake_cuda::mark;
using millrace::fake_cuda::operation;
using millrace::fake_cuda::place;
using millrace::fake_cuda::stream;
using millrace::fake_cuda::this_thread;
using millrace::fake_cuda::world;

cudaError_t remember(cudaError_t code) {
  if (code != cudaSuccess) this_thread().last = code;
  return code;
}

/// Runs `body(world)` as the runtime function `name`. A function that gives something back does so on a broken device,
/// too.
template <class Body>
cudaError_t call(const char* name, bool needs_context, Body body, bool gives_back = false) {
  world& w = world::instance();
  const std::lock_guard lock(w.mutex);
  if (this_thread().in_callback) {
    w.complain(std::string(name) + " called inside a host callback");
    return remember(cudaErrorNotPermitted);
  }
  cudaError_t code = w.enter(name, needs_context);
  if (code == cudaSuccess || (gives_back && w.broken())) {
    const cudaError_t result = body(w);
    code = w.broken() ? w.sticky() : result;  // also when the work of this very call has failed
  }
  return remember(code);
}

/// The same for functions of one stream.
template <class Body>
cudaError_t call_on(const char* name, cudaStream_t handle, Body body, bool gives_back = false) {
  const auto found = [&](world& w) {
    stream* s = w.find_stream(handle, name);
    return s == nullptr ? cudaErrorInvalidResourceHandle : body(w, *s);
  };
  return call(name, true, found, gives_back);
}

cudaStream_t or_per_thread(cudaStream_t handle) { return handle == nullptr ? cudaStreamPerThread : handle; }

std::map<const void*, millrace::fake_cuda::detail::bind_kernel>& kernels() {
  static std::map<const void*, millrace::fake_cuda::detail::bind_kernel> known;
  return known;
}

struct named_error {
  cudaError_t code;
  const char *name, *text;
};
constexpr named_error known_errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorStubLibrary, "cudaErrorStubLibrary", "CUDA driver is a stub library"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
};

/// The driver's function, as cudaGetDriverEntryPoint hands it out.
int primary_context_state(int device, unsigned* flags, int* active) {
  world& w = world::instance();
  const std::lock_guard lock(w.mutex);
  *flags = 0;
  *active = w.contexts.count(device) != 0 ? 1 : 0;
  return 0;
}

cudaError_t entry_point(const char* symbol, void** function, cudaDriverEntryPointQueryResult* found) {
  return call("cudaGetDriverEntryPoint", false, [&](world&) {
    const bool known = std::strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
    *function = known ? reinterpret_cast<void*>(&primary_context_state) : nullptr;
    if (found != nullptr) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return known ? cudaSuccess : cudaErrorInvalidValue;
  });
}

}  // namespace

void millrace::fake_cuda::detail::know_kernel(const void* function, bind_kernel bind) {
  kernels()[function] = std::move(bind);
}

extern "C" {

const char* cudaGetErrorString(cudaError_t code) {
  for (const named_error& e : known_errors) {
    if (e.code == code) return e.text;
  }
  return "another error";
}

const char* cudaGetErrorName(cudaError_t code) {
  for (const named_error& e : known_errors) {
    if (e.code == code) return e.name;
  }
  return "cudaErrorOther";
}

cudaError_t cudaGetLastError() {
  const std::lock_guard lock(world::instance().mutex);
  return std::exchange(this_thread().last, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(world::instance().mutex);
  return this_thread().last;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", false, [&](world& w) {
    *count = w.with.device_count;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  return call("cudaDeviceGetPCIBusId", false, [&](world& w) {
    if (device < 0 || device >= w.with.device_count) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(size), "0000:%02X:00.0", 0x3B + device);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", false, [&](world&) {
    *device = this_thread().device;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", false, [&](world& w) {
    if (device < 0 || device >= w.with.device_count) return cudaErrorInvalidDevice;
    this_thread().device = device;
    w.contexts.insert(device);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
  return entry_point(symbol, function, found);
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return entry_point(symbol, function, found);
}
#endif

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call("cudaThreadExchangeStreamCaptureMode", true, [&](world&) {
    std::swap(*mode, this_thread().capture_mode);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call_on("cudaStreamBeginCapture", handle, [&](world& w, stream& s) {
    s.captures = true;
    w.capturing = mode == cudaStreamCaptureModeGlobal;
    w.capture_invalidated = false;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call_on("cudaStreamEndCapture", handle, [&](world& w, stream& s) {
    s.captures = w.capturing = false;
    *graph = w.capture_invalidated ? nullptr : reinterpret_cast<cudaGraph_t>(&s);
    return w.capture_invalidated ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call_on("cudaStreamIsCapturing", handle, [&](world&, stream& s) {
    *status = s.captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return call("cudaGraphDestroy", false, [](world&) { return cudaSuccess; });
}

cudaError_t cudaMalloc(void** memory, std::size_t size) {
  return call("cudaMalloc", true, [&](world& w) {
    if (size > w.with.largest_allocation) return cudaErrorMemoryAllocation;
    *memory = size == 0 ? nullptr : w.allocate(true, size, this_thread().device)->address;
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* memory) {
  return call(
      "cudaFree", true, [&](world& w) { return w.free(memory, true, "cudaFree"); }, true);
}

cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned) {
  return call("cudaHostAlloc", true, [&](world& w) {
    if (size > w.with.largest_allocation) return cudaErrorMemoryAllocation;
    if (size == 0) return cudaErrorInvalidValue;
    *memory = w.allocate(false, size, this_thread().device)->address;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  return call(
      "cudaFreeHost", true, [&](world& w) { return w.free(memory, false, "cudaFreeHost"); }, true);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  return call("cudaPointerGetAttributes", true, [&](world& w) {
    place p;
    if (!w.locate(pointer, 0, "cudaPointerGetAttributes", p)) return cudaErrorInvalidValue;
    *out = cudaPointerAttributes();
    out->type =
        p.in == nullptr ? cudaMemoryTypeUnregistered : (p.in->on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost);
    out->device = p.in == nullptr ? -1 : p.in->device;
    out->devicePointer = p.in == nullptr ? nullptr : const_cast<void*>(pointer);
    out->hostPointer = p.in != nullptr && p.in->on_device ? nullptr : const_cast<void*>(pointer);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  return call("cudaStreamCreateWithFlags", true, [&](world& w) {
    *out = w.make_stream(this_thread().device);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call_on(
      "cudaStreamDestroy", handle,
      [&](world&, stream& s) {
        s.destroyed = true;  // what is enqueued still runs
        return cudaSuccess;
      },
      true);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call_on("cudaStreamQuery", handle, [&](world& w, stream& s) {
    if (s.seq == 0 || w.host.covers(s.id, s.seq)) return cudaSuccess;
    const std::shared_ptr<mark> tail = w.tail_of(s);
    return w.poll(*tail) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call_on("cudaStreamSynchronize", handle, [&](world& w, stream& s) {
    const std::shared_ptr<mark> tail = w.tail_of(s);
    w.complete(*tail);
    w.host.learn(tail->known);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t which, unsigned) {
  return call_on("cudaStreamWaitEvent", handle, [&](world& w, stream& s) {
    event* e = w.find_event(which, "cudaStreamWaitEvent");
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (e->last == nullptr) return cudaSuccess;
    operation op;
    op.kind = operation::wait;
    op.at = e->last;
    w.enqueue(s, std::move(op), "wait");
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return call("cudaEventCreateWithFlags", true, [&](world& w) {
    *out = w.make_event(this_thread().device, (flags & cudaEventBlockingSync) != 0);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
  return call_on("cudaEventRecord", on, [&](world& w, stream& s) {
    event* e = w.find_event(handle, "cudaEventRecord");
    if (e == nullptr || e->device != s.device) return cudaErrorInvalidResourceHandle;
    e->last = w.record(s);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call("cudaEventQuery", true, [&](world& w) {
    event* e = w.find_event(handle, "cudaEventQuery");
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    return e->last == nullptr || w.poll(*e->last) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call("cudaEventSynchronize", true, [&](world& w) {
    event* e = w.find_event(handle, "cudaEventSynchronize");
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (e->last == nullptr) return cudaSuccess;
    const std::shared_ptr<mark> last = e->last;
    if (!last->done && !e->sleeps) ++w.spun;
    w.complete(*last);
    w.host.learn(last->known);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call(
      "cudaEventDestroy", true,
      [&](world& w) {
        event* e = w.find_event(handle, "cudaEventDestroy");
        if (e == nullptr) return cudaErrorInvalidResourceHandle;
        e->destroyed = true;
        return cudaSuccess;
      },
      true);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, cudaStream_t handle) {
  return call_on("cudaMemcpyAsync", handle, [&](world& w, stream& s) { return w.enqueue_copy(to, from, n, kind, s); });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind) {
  return call_on("cudaMemcpy", nullptr, [&](world& w, stream& s) {
    const cudaError_t code = w.enqueue_copy(to, from, n, kind, s);
    if (code != cudaSuccess) return code;
    const std::shared_ptr<mark> tail = w.tail_of(s);
    w.complete(*tail);
    w.host.learn(tail->known);
    return cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t n, cudaStream_t handle) {
  return call_on("cudaMemsetAsync", handle, [&](world& w, stream& s) {
    operation op;
    op.kind = operation::fill;
    op.size = n;
    op.value = value;
    if (!w.locate(memory, n, "cudaMemsetAsync", op.to) || op.to.in == nullptr) return cudaErrorInvalidValue;
    w.enqueue(s, std::move(op), "memset");
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  return call_on("cudaLaunchHostFunc", handle, [&](world& w, stream& s) {
    operation op;
    op.kind = operation::host_function;
    op.function = function;
    op.argument = argument;
    w.enqueue(s, std::move(op), "host function");
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 threads, void** arguments, std::size_t,
                             cudaStream_t handle) {
  return call_on("cudaLaunchKernel", handle, [&](world& w, stream& s) {
    const auto known = kernels().find(function);
    if (known == kernels().end()) return cudaErrorInvalidDeviceFunction;
    if (!millrace::test::is_grid(grid, threads)) return cudaErrorInvalidConfiguration;
    if (s.device != this_thread().device) return cudaErrorInvalidResourceHandle;
    operation op;
    op.kind = operation::launched;
    bool found = true;
    kernel_memory memory([&](const kernel_memory::range& r) -> void* {
      place at;
      found = w.locate(r.address, r.size, "kernel", at) && found;
      op.uses.push_back({at, r.size, r.write});
      return at.bytes;
    });
    op.launch = [grid, threads, run = known->second(arguments[0], memory)] {
      millrace::test::run_grid(grid, threads, run);
    };
    if (!found) return cudaSuccess;  // it has been said what is wrong
    const std::size_t wrong = w.wrong.size();
    w.enqueue(s, std::move(op), "kernel");
    // Its table of offsets, say, may not be there yet: the result of a kernel is then not checked.
    if (w.wrong.size() != wrong) s.queue.back().launch = [] {};
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", true, [&](world& w) {
    w.complete_all();
    return cudaSuccess;
  });
}

// What files compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM call: the null stream is the calling thread's there.

cudaError_t cudaMemcpyAsync_ptsz(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, cudaStream_t handle) {
  return cudaMemcpyAsync(to, from, n, kind, or_per_thread(handle));
}
cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t handle) {
  return cudaEventRecord(event, or_per_thread(handle));
}
cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  return cudaStreamWaitEvent(or_per_thread(handle), event, flags);
}
cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return cudaStreamIsCapturing(or_per_thread(handle), status);
}
cudaError_t cudaStreamQuery_ptsz(cudaStream_t handle) { return cudaStreamQuery(or_per_thread(handle)); }
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t handle) { return cudaStreamSynchronize(or_per_thread(handle)); }
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char* name, void** function, unsigned version,
                                                  unsigned long long flags, cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(name, function, version, flags, found);
}
#endif

}  // extern "C"
