// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The functions of the CUDA runtime that the library and its tests call, over machine.hpp. Signatures are those of the
// toolkit's own header, which the compiler checks.

#include <cstring>
#include <utility>

#include "tests/cuda/blocks.hpp"
#include "tests/threaded_cuda/machine.hpp"

namespace {

using namespace millrace::threaded_cuda;
using millrace::rng;

cudaError_t remember(cudaError_t code) {
  if (code != cudaSuccess) this_thread().last = code;
  return code;
}

/// Runs `body(machine, lock)` as the runtime's function `name`.
template <class Body>
cudaError_t call(const char* name, Body body) {
  const unseen hidden;
  machine& m = machine::instance();
  machine::lock held(m.mutex);
  ++m.called[name];
  if (this_thread().in_host_function) {
    m.complain(std::string(name) + " called inside a host function");
    return remember(cudaErrorNotPermitted);
  }
  return remember(body(m, held));
}

/// The same for what makes the context of the current device, if there is none.
template <class Body>
cudaError_t call_here(const char* name, Body body) {
  return call(name, [&](machine& m, machine::lock& held) {
    m.contexts.insert(this_thread().device);
    return body(m, held);
  });
}

/// The same for a function that may not be called while another thread captures.
template <class Body>
cudaError_t call_unsafe(const char* name, Body body) {
  return call_here(name, [&](machine& m, machine::lock& held) {
    const cudaError_t code = m.refuse_unsafe();
    return code == cudaSuccess ? body(m, held) : code;
  });
}

template <class Body>
cudaError_t call_on(const char* name, cudaStream_t handle, Body body) {
  return call_here(name, [&](machine& m, machine::lock& held) {
    stream* const s = m.find(handle, name);
    return s == nullptr ? cudaErrorInvalidResourceHandle : body(m, held, *s);
  });
}

std::unique_ptr<piece> work(const char* what, std::vector<range> uses, std::function<void(rng&)> action) {
  auto made = std::make_unique<piece>();
  made->what = what;
  made->uses = std::move(uses);
  made->action = std::move(action);
  return made;
}

/// Byte by byte in two parts, with the stream's pause between: what changes meanwhile is seen.
void copy_in_parts(char* to, const char* from, std::size_t n, rng& random) {
  const std::size_t first = n == 0 ? 0 : static_cast<std::size_t>(random.below(n));
  std::memcpy(to, from, first);
  if (random.below(4) == 0) std::this_thread::yield();
  std::memcpy(to + first, from + first, n - first);
}

/// What a pointer is to the runtime. False when the range leaves its allocation or that is freed.
bool place_of(machine& m, const void* address, std::size_t n, const char* name, const block*& found) {
  auto* const at = m.find(address);
  found = nullptr;
  if (at == nullptr) return true;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(address) - at->first);
  if (offset == at->second.size && n != 0) {
    return true;  // just after one: ordinary memory for all that is known
  }
  if (at->second.freed || n > at->second.size - offset) {
    m.complain(std::string(name) + (at->second.freed ? " of memory that is freed" : " leaves its allocation"));
    return false;
  }
  found = &at->second;
  return true;
}

cudaError_t copy(machine& m, stream& s, void* to, const void* from, std::size_t n, cudaMemcpyKind direction,
                 bool& staged) {
  const block* target = nullptr;
  const block* source = nullptr;
  if (!place_of(m, to, n, "cudaMemcpy", target) || !place_of(m, from, n, "cudaMemcpy", source)) {
    return cudaErrorInvalidValue;
  }
  const bool there = target != nullptr && target->of == kind::device;
  const bool back = source != nullptr && source->of == kind::device;
  const cudaMemcpyKind real = there ? (back ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                                    : (back ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  if (direction != cudaMemcpyDefault && direction != real) {
    m.complain("cudaMemcpy in a direction that its pointers do not have");
    return cudaErrorInvalidValue;
  }
  auto* const into = static_cast<char*>(to);
  const auto* const out_of = static_cast<const char*>(from);
  staged = source == nullptr && there;
  if (!staged) {
    return m.enqueue(s, work("a copy", {{to, n}, {from, n}},
                             [into, out_of, n](rng& random) { copy_in_parts(into, out_of, n, random); }));
  }
  std::string bytes;
  {
    const seen shown;
    bytes.assign(out_of, n);
  }
  return m.enqueue(s, work("a copy", {{to, n}}, [into, bytes = std::move(bytes)](rng& random) {
                     copy_in_parts(into, bytes.data(), bytes.size(), random);
                   }));
}

cudaStream_t or_per_thread(cudaStream_t handle) { return handle == nullptr ? cudaStreamPerThread : handle; }

struct named_error {
  cudaError_t code;
  const char *name, *text;
};
constexpr named_error known_errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture sequence was not begun on this stream"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

/// The driver's function, as cudaGetDriverEntryPoint hands it out.
int primary_context_state(int device, unsigned* flags, int* active) {
  const unseen hidden;
  machine& m = machine::instance();
  const machine::lock held(m.mutex);
  *flags = 0;
  *active = m.contexts.count(device) != 0 ? 1 : 0;
  return 0;
}

cudaError_t entry_point(const char* symbol, void** function, cudaDriverEntryPointQueryResult* found) {
  return call("cudaGetDriverEntryPoint", [&](machine&, machine::lock&) {
    const bool known = std::strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
    *function = known ? reinterpret_cast<void*>(&primary_context_state) : nullptr;
    if (found != nullptr) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  });
}

cudaError_t allocate(machine& m, void** memory, kind of, std::size_t size) {
  *memory = m.allocate(of, size, this_thread().device);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

}  // namespace

namespace millrace::threaded_cuda {

void reset(std::uint64_t seed) { machine::instance().reset(seed); }
std::vector<std::string> violations() { return machine::instance().violations(); }
std::string leaks() {
  const unseen hidden;
  machine& m = machine::instance();
  const machine::lock held(m.mutex);
  return m.leaks();
}
std::size_t calls(const std::string& name) {
  const unseen hidden;
  machine& m = machine::instance();
  const machine::lock held(m.mutex);
  return m.called[name];
}
void detail::know_kernel(const void* function, std::function<bound_kernel(const void*)> bind) {
  const unseen hidden;
  machine& m = machine::instance();
  const machine::lock held(m.mutex);
  m.kernels[function] = std::move(bind);
}

}  // namespace millrace::threaded_cuda

extern "C" {

const char* cudaGetErrorString(cudaError_t code) {
  for (const named_error& e : known_errors) {
    if (e.code == code) return e.text;
  }
  return "unrecognized error code";
}

const char* cudaGetErrorName(cudaError_t code) {
  for (const named_error& e : known_errors) {
    if (e.code == code) return e.name;
  }
  return "unrecognized error code";
}

cudaError_t cudaGetLastError() { return std::exchange(this_thread().last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return this_thread().last; }

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&](machine&, machine::lock&) {
    *count = device_count;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  return call("cudaDeviceGetPCIBusId", [&](machine&, machine::lock&) {
    if (device < 0 || device >= device_count) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(size), "0000:%02X:00.0", 0x3B + device);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&](machine&, machine::lock&) {
    *device = this_thread().device;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&](machine& m, machine::lock&) {
    if (device < 0 || device >= device_count) return cudaErrorInvalidDevice;
    this_thread().device = device;
    m.contexts.insert(device);
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

// ---- memory

cudaError_t cudaMalloc(void** memory, std::size_t size) {
  return call_unsafe("cudaMalloc", [&](machine& m, machine::lock&) { return allocate(m, memory, kind::device, size); });
}

cudaError_t cudaFree(void* memory) {
  return call_unsafe("cudaFree", [&](machine& m, machine::lock&) { return m.free(memory, kind::device, "cudaFree"); });
}

cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned) {
  return call_unsafe("cudaHostAlloc",
                     [&](machine& m, machine::lock&) { return allocate(m, memory, kind::host, size); });
}

cudaError_t cudaFreeHost(void* memory) {
  return call_unsafe("cudaFreeHost",
                     [&](machine& m, machine::lock&) { return m.free(memory, kind::host, "cudaFreeHost"); });
}

cudaError_t cudaMallocAsync(void** memory, std::size_t size, cudaStream_t handle) {
  return call_on("cudaMallocAsync", handle, [&](machine& m, machine::lock&, stream& s) {
    const cudaError_t code = allocate(m, memory, kind::device, size);
    if (code != cudaSuccess) return code;
    // It had another owner until the stream gets there.
    return m.enqueue(s, work("an allocation", {}, [at = *memory, size](rng&) { std::memset(at, 0xce, size); }));
  });
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t handle) {
  return call_on("cudaFreeAsync", handle, [&](machine& m, machine::lock&, stream& s) {
    auto* const at = m.find(memory);
    if (at == nullptr || at->first != memory || at->second.of != kind::device || at->second.freed) {
      m.complain("cudaFreeAsync of memory that was not given out, or is freed");
      return cudaErrorInvalidValue;
    }
    return m.enqueue(s, work("cudaFreeAsync", {{memory, 0}}, [&m, memory](rng&) { m.poison(memory); }));
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  return call_here("cudaPointerGetAttributes", [&](machine& m, machine::lock&) {
    const block* in = nullptr;
    if (!place_of(m, pointer, 0, "cudaPointerGetAttributes", in)) return cudaErrorInvalidValue;
    *out = cudaPointerAttributes();
    out->type = in == nullptr            ? cudaMemoryTypeUnregistered
                : in->of == kind::device ? cudaMemoryTypeDevice
                                         : cudaMemoryTypeHost;
    out->device = in == nullptr ? -2 : in->device;
    out->devicePointer = in == nullptr ? nullptr : const_cast<void*>(pointer);
    out->hostPointer = in != nullptr && in->of == kind::device ? nullptr : const_cast<void*>(pointer);
    return cudaSuccess;
  });
}

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return call_here("cudaStreamCreateWithFlags", [&](machine& m, machine::lock&) {
    *out = m.make_stream(this_thread().device, (flags & cudaStreamNonBlocking) == 0);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call_on("cudaStreamDestroy", handle, [&](machine& m, machine::lock&, stream&) {
    if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
      return cudaErrorInvalidResourceHandle;
    }
    m.close(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call_on("cudaStreamQuery", handle, [&](machine& m, machine::lock& held, stream& s) {
    if (const cudaError_t code = m.refuse_captured(s); code != cudaSuccess) return code;
    if (const cudaError_t code = m.refuse_unsafe(); code != cudaSuccess) return code;
    if (s.tail != nullptr && !s.tail->reached) return cudaErrorNotReady;
    m.wait(held, s.tail);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call_on("cudaStreamSynchronize", handle, [&](machine& m, machine::lock& held, stream& s) {
    if (const cudaError_t code = m.refuse_captured(s); code != cudaSuccess) return code;
    if (const cudaError_t code = m.refuse_unsafe(); code != cudaSuccess) return code;
    m.wait(held, mark_ptr(s.tail));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t which, unsigned) {
  return call_on("cudaStreamWaitEvent", handle, [&](machine& m, machine::lock&, stream& s) {
    event* const e = m.find(which, "cudaStreamWaitEvent");
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (e->into && !s.into) {  // the stream joins the capture
      s.into = e->into;
      return cudaSuccess;
    }
    if (s.into && e->last && s.into != e->into) {
      s.into->valid = false;
      return cudaErrorStreamCaptureIsolation;
    }
    if (e->last == nullptr) return cudaSuccess;
    auto made = work("a wait", {}, nullptr);
    made->after.push_back(e->last);
    return m.enqueue(s, std::move(made));
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  return call_on("cudaLaunchHostFunc", handle, [&](machine& m, machine::lock&, stream& s) {
    return m.enqueue(s, work("a host function", {}, [function, argument](rng&) {
                       this_thread().in_host_function = true;
                       function(argument);
                       this_thread().in_host_function = false;
                     }));
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call_unsafe("cudaDeviceSynchronize", [&](machine& m, machine::lock& held) {
    if (const cudaError_t code = m.refuse_all(this_thread().device); code != cudaSuccess) return code;
    for (const mark_ptr& each : m.tails(this_thread().device)) m.wait(held, each);
    return cudaSuccess;
  });
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return call_here("cudaEventCreateWithFlags", [&](machine& m, machine::lock&) {
    *out = m.make_event(this_thread().device, flags);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
  return call_on("cudaEventRecord", on, [&](machine& m, machine::lock&, stream& s) {
    event* const e = m.find(handle, "cudaEventRecord");
    if (e == nullptr || e->device != s.device) return cudaErrorInvalidResourceHandle;
    auto made = work("a mark", {}, nullptr);
    mark_ptr done = made->done;
    const cudaError_t code = m.enqueue(s, std::move(made));
    if (code != cudaSuccess) return code;
    e->into = s.into;
    e->last = s.into ? nullptr : std::move(done);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call_unsafe("cudaEventQuery", [&](machine& m, machine::lock& held) {
    event* const e = m.find(handle, "cudaEventQuery");
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (e->into) {
      e->into->valid = false;
      return cudaErrorCapturedEvent;
    }
    if (e->last != nullptr && !e->last->reached) return cudaErrorNotReady;
    m.wait(held, e->last);
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call_unsafe("cudaEventSynchronize", [&](machine& m, machine::lock& held) {
    event* const e = m.find(handle, "cudaEventSynchronize");
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (e->into) {
      e->into->valid = false;
      return cudaErrorCapturedEvent;
    }
    m.wait(held, mark_ptr(e->last));
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call_here("cudaEventDestroy", [&](machine& m, machine::lock&) {
    event* const e = m.find(handle, "cudaEventDestroy");
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    e->destroyed = true;  // who waits for it still does
    return cudaSuccess;
  });
}

// ---- work

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind direction, cudaStream_t handle) {
  return call_on("cudaMemcpyAsync", handle, [&](machine& m, machine::lock&, stream& s) {
    bool staged = false;
    return copy(m, s, to, from, n, direction, staged);
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind direction) {
  return call_on("cudaMemcpy", nullptr, [&](machine& m, machine::lock& held, stream& s) {
    if (const cudaError_t code = m.refuse_unsafe(); code != cudaSuccess) return code;
    const mark_ptr before = s.tail;
    bool staged = false;
    const cudaError_t code = copy(m, s, to, from, n, direction, staged);
    // From ordinary memory to the device it may be on its way when the call returns.
    if (code == cudaSuccess) m.wait(held, staged ? before : mark_ptr(s.tail));
    return code;
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t n, cudaStream_t handle) {
  return call_on("cudaMemsetAsync", handle, [&](machine& m, machine::lock&, stream& s) {
    const block* in = nullptr;
    if (!place_of(m, memory, n, "cudaMemsetAsync", in) || in == nullptr) return cudaErrorInvalidValue;
    return m.enqueue(s, work("a memset", {{memory, n}}, [memory, value, n](rng&) { std::memset(memory, value, n); }));
  });
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 threads, void** arguments, std::size_t,
                             cudaStream_t handle) {
  return call_on("cudaLaunchKernel", handle, [&](machine& m, machine::lock&, stream& s) {
    const auto known = m.kernels.find(function);
    if (known == m.kernels.end()) return cudaErrorInvalidDeviceFunction;
    if (!millrace::test::is_grid(grid, threads)) return cudaErrorInvalidConfiguration;
    if (s.device != this_thread().device) return cudaErrorInvalidResourceHandle;
    return m.enqueue(s, work("a kernel", {}, [grid, threads, run = known->second(arguments[0])](rng&) {
                       millrace::test::run_grid(grid, threads, run);
                     }));
  });
}

// ---- captures

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call_here("cudaThreadExchangeStreamCaptureMode", [&](machine&, machine::lock&) {
    std::swap(*mode, this_thread().mode);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call_on("cudaStreamBeginCapture", handle, [&](machine&, machine::lock&, stream& s) {
    if (handle == nullptr || handle == cudaStreamLegacy) return cudaErrorStreamCaptureUnsupported;
    if (s.into) return cudaErrorIllegalState;
    s.into = std::make_shared<capture>(capture{mode, std::this_thread::get_id(), handle});
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call_on("cudaStreamEndCapture", handle, [&](machine& m, machine::lock&, stream& s) {
    *graph = nullptr;
    if (!s.into) return cudaErrorIllegalState;
    const std::shared_ptr<capture> of = s.into;
    if (of->origin != handle) return cudaErrorStreamCaptureUnmatched;
    if (of->mode != cudaStreamCaptureModeRelaxed && of->by != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    m.end(of);
    if (!of->valid) return cudaErrorStreamCaptureInvalidated;
    *graph = reinterpret_cast<cudaGraph_t>(of.get());
    m.graphs.insert(*graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", [&](machine& m, machine::lock&) {
    return m.graphs.erase(graph) == 1 ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call_on("cudaStreamIsCapturing", handle, [&](machine& m, machine::lock&, stream& s) {
    *status = !s.into         ? cudaStreamCaptureStatusNone
              : s.into->valid ? cudaStreamCaptureStatusActive
                              : cudaStreamCaptureStatusInvalidated;
    return m.captures_beside(s) ? cudaErrorStreamCaptureImplicit : cudaSuccess;
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
cudaError_t cudaStreamQuery_ptsz(cudaStream_t handle) { return cudaStreamQuery(or_per_thread(handle)); }
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t handle) { return cudaStreamSynchronize(or_per_thread(handle)); }
cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return cudaStreamIsCapturing(or_per_thread(handle), status);
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char* name, void** function, unsigned version,
                                                  unsigned long long flags, cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(name, function, version, flags, found);
}
#endif

}  // extern "C"
