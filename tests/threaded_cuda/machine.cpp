// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/threaded_cuda/machine.hpp"

#include <cstring>
#include <new>

#if MILLRACE_TSAN
// A report needs the stacks of both accesses, and the former one may be long ago.
extern "C" const char* __tsan_default_options() { return "history_size=7"; }  // NOLINT: the sanitizer's name
#endif

namespace millrace::threaded_cuda {

namespace {

constexpr unsigned char poison_byte = 0xdb;
constexpr unsigned char unset_byte = 0xcd;
constexpr std::size_t alignment = 256;
constexpr std::size_t memory_bytes = std::size_t(1) << 30;  // of an allocation at most

const char* name_of(kind k) { return k == kind::device ? "device memory" : "page-locked memory"; }

}  // namespace

machine& machine::instance() {
  static machine m;
  return m;
}

thread_state& this_thread() {
  static thread_local thread_state state;
  return state;
}

void machine::reset(std::uint64_t seed) {
  const unseen hidden;
  std::vector<std::thread> threads;
  {
    const lock held(mutex);
    for (auto& [handle, s] : streams_) {
      s->closed = true;
      s->more.notify_all();
      threads.push_back(std::move(s->thread));
    }
  }
  for (std::thread& t : threads) t.join();
  const lock held(mutex);
  streams_.clear();
  defaults_.clear();
  events_.clear();
  for (auto& [address, b] : blocks_) ::operator delete(address, std::align_val_t(alignment));
  blocks_.clear();
  graphs.clear();
  contexts.clear();
  called.clear();
  wrong_.clear();
  seed_ = seed;
}

// ---- memory

void* machine::allocate(kind of, std::size_t size, int device) {
  if (size > memory_bytes) return nullptr;
  char* const address = static_cast<char*>(::operator new(size, std::align_val_t(alignment)));
  blocks_[address] = block{of, size, device};
  const seen shown;
  std::memset(address, unset_byte, size);
  return address;
}

std::pair<char* const, block>* machine::find(const void* address) {
  char* const p = static_cast<char*>(const_cast<void*>(address));
  const auto above = blocks_.upper_bound(p);
  if (above == blocks_.begin()) return nullptr;
  auto& found = *std::prev(above);
  return p <= found.first + found.second.size ? &found : nullptr;
}

cudaError_t machine::free(void* address, kind of, const char* call) {
  if (address == nullptr) return cudaSuccess;
  const auto found = blocks_.find(static_cast<char*>(address));
  if (found == blocks_.end() || found->second.of != of) {
    complain(std::string(call) + " of memory that it did not give out");
    return cudaErrorInvalidValue;
  }
  if (found->second.freed) {
    complain(std::string(call) + " of " + name_of(of) + " that is freed already");
    return cudaErrorInvalidValue;
  }
  found->second.freed = true;
  const seen shown;
  std::memset(address, poison_byte, found->second.size);
  return cudaSuccess;
}

void machine::poison(void* address) {
  std::size_t size = 0;
  {
    const unseen hidden;
    const lock held(mutex);
    block& b = blocks_.at(static_cast<char*>(address));
    b.freed = true;
    size = b.size;
  }
  std::memset(address, poison_byte, size);
}

std::vector<std::string> machine::violations() {
  const unseen hidden;
  lock held(mutex);
  quiesce(held);
  for (auto& [address, b] : blocks_) {
    if (!b.freed) continue;
    for (std::size_t i = 0; i < b.size; ++i) {
      if (static_cast<unsigned char>(address[i]) == poison_byte) continue;
      complain(std::string(name_of(b.of)) + " written after it was freed");
      std::memset(address, poison_byte, b.size);
      break;
    }
  }
  return wrong_;
}

std::string machine::leaks() const {
  std::size_t open = 0, events = 0, host = 0, device = 0;
  for (const auto& [handle, s] : streams_) open += s->closed ? 0 : 1;
  for (const auto& [place, handle] : defaults_) open -= handle == nullptr ? 0 : 1;
  for (const auto& [handle, e] : events_) events += e->destroyed ? 0 : 1;
  for (const auto& [address, b] : blocks_) {
    if (!b.freed) ++(b.of == kind::device ? device : host);
  }
  std::string text;
  const auto add = [&text](std::size_t n, const char* what) {
    if (n != 0) text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + what;
  };
  add(open, "streams");
  add(events, "events");
  add(host, "page-locked allocations");
  add(device, "device allocations");
  return text;
}

// ---- streams and events

cudaStream_t machine::make_stream(int device, bool blocking) {
  auto made = std::make_unique<stream>(device, blocking, seed_ * 1000003 + streams_.size());
  auto* const handle = reinterpret_cast<cudaStream_t>(made.get());
  stream& s = *(streams_[handle] = std::move(made));
  s.thread = std::thread([this, &s] { work_off(s); });
  return handle;
}

stream* machine::find(cudaStream_t handle, const char* call) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    const int device = this_thread().device;
    const bool per_thread = handle == cudaStreamPerThread;
    cudaStream_t& one = defaults_[{device, per_thread ? std::this_thread::get_id() : std::thread::id()}];
    if (one == nullptr) one = make_stream(device, per_thread);
    handle = one;
  }
  const auto found = streams_.find(handle);
  if (found == streams_.end() || found->second->closed) {
    complain(std::string(call) + " on a stream that does not exist or is destroyed");
    return nullptr;
  }
  return found->second.get();
}

void machine::close(cudaStream_t handle) {
  stream& s = *streams_.at(handle);
  s.closed = true;
  s.more.notify_all();
}

cudaEvent_t machine::make_event(int device, unsigned flags) {
  auto made = std::make_unique<event>();
  made->device = device;
  made->flags = flags;
  auto* const handle = reinterpret_cast<cudaEvent_t>(made.get());
  events_[handle] = std::move(made);
  return handle;
}

event* machine::find(cudaEvent_t handle, const char* call) {
  const auto found = events_.find(handle);
  if (found == events_.end() || found->second->destroyed) {
    complain(std::string(call) + " with an event that does not exist or is destroyed");
    return nullptr;
  }
  return found->second.get();
}

bool machine::is_legacy(const stream& s) { return reinterpret_cast<const stream*>(legacy(s.device)) == &s; }

cudaError_t machine::enqueue(stream& s, std::unique_ptr<piece> work) {
  if (s.into) return s.into->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
  if (is_legacy(s)) {  // after all blocking streams
    if (const cudaError_t code = refuse_captured(s); code != cudaSuccess) return code;
    for (const auto& [handle, other] : streams_) {
      if (other->device == s.device && other->blocking && other->tail) work->after.push_back(other->tail);
    }
  } else if (s.blocking) {  // and they are after it
    if (cudaStream_t const first = legacy(s.device); first != nullptr && streams_.at(first)->tail) {
      work->after.push_back(streams_.at(first)->tail);
    }
  }
  {
    const seen shown;
    work->issued.publish();
  }
  s.tail = work->done;
  s.queue.push_back(std::move(work));
  s.more.notify_all();
  return cudaSuccess;
}

void machine::wait(lock& held, const mark_ptr& until) {
  if (until == nullptr) return;
  reached_.wait(held, [&] { return until->reached; });
  const seen shown;
  until->order.learn();
}

std::vector<mark_ptr> machine::tails(int device) const {
  std::vector<mark_ptr> all;
  for (const auto& [handle, s] : streams_) {
    if (s->device == device && s->tail) all.push_back(s->tail);
  }
  return all;
}

void machine::quiesce(lock& held) {
  reached_.wait(held, [this] {
    for (const auto& [handle, s] : streams_) {
      if (!s->queue.empty()) return false;
    }
    return true;
  });
}

/// A stream's thread.
void machine::work_off(stream& s) {
  const unseen hidden;
  lock held(mutex);
  for (;;) {
    s.more.wait(held, [&s] { return !s.queue.empty() || s.closed; });
    if (s.queue.empty()) return;
    piece& work = *s.queue.front();
    for (const mark_ptr& each : work.after) {
      reached_.wait(held, [&each] { return each->reached; });
    }
    held.unlock();
    // How long work takes to begin is what the tests are to vary.
    const std::uint64_t draw = s.random.below(8);
    for (std::uint64_t left = draw == 0 ? s.random.below(400) : draw == 1; left > 0; --left) std::this_thread::yield();
    held.lock();
    for (const range& each : work.uses) {
      const auto* const at = find(each.address);
      if (at != nullptr && at->second.freed) {
        complain(std::string(work.what) + " uses " + name_of(at->second.of) + " that is freed");
      }
    }
    held.unlock();
    {
      const seen shown;
      work.issued.learn();
      for (const mark_ptr& each : work.after) each->order.learn();
      if (work.action) work.action(s.random);
      work.done->order.publish();
    }
    held.lock();
    work.done->reached = true;
    s.queue.pop_front();
    reached_.notify_all();
  }
}

// ---- captures

bool machine::captures_beside(const stream& s) {
  if (!is_legacy(s)) return false;
  for (const auto& [handle, other] : streams_) {
    if (other->device == s.device && other->blocking && other->into) return true;
  }
  return false;
}

cudaError_t machine::refuse_captured(stream& s) {
  if (s.into) {
    s.into->valid = false;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (!captures_beside(s)) return cudaSuccess;
  for (const auto& [handle, other] : streams_) {
    if (other->device == s.device && other->blocking && other->into) other->into->valid = false;
  }
  return cudaErrorStreamCaptureImplicit;
}

cudaError_t machine::refuse_unsafe() {
  const cudaStreamCaptureMode mine = this_thread().mode;
  if (mine == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t code = cudaSuccess;
  for (const auto& [handle, s] : streams_) {
    if (!s->into || s->into->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool own = s->into->by == std::this_thread::get_id();
    const bool global = mine == cudaStreamCaptureModeGlobal && s->into->mode == cudaStreamCaptureModeGlobal;
    if (!own && !global) continue;
    s->into->valid = false;
    code = cudaErrorStreamCaptureUnsupported;
  }
  return code;
}

cudaError_t machine::refuse_all(int device) {
  cudaError_t code = cudaSuccess;
  for (const auto& [handle, s] : streams_) {
    if (s->device != device || !s->into) continue;
    s->into->valid = false;
    code = cudaErrorStreamCaptureUnsupported;
  }
  return code;
}

void machine::end(const std::shared_ptr<capture>& of) {
  for (const auto& [handle, s] : streams_) {
    if (s->into == of) s->into.reset();
  }
}

}  // namespace millrace::threaded_cuda
