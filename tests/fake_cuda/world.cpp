// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/world.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

namespace millrace::fake_cuda {

namespace {

constexpr unsigned char poison = 0xdb;
constexpr unsigned char unset = 0xcd;
constexpr std::size_t page = 4096;

std::uint64_t hash(const char* data, std::size_t n) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < n; ++i) h = (h ^ static_cast<unsigned char>(data[i])) * 0x100000001b3u;
  return h;
}

char* map_pages(std::size_t n, int protection) {
  void* p = ::mmap(nullptr, n, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) std::abort();
  return static_cast<char*>(p);
}

std::string on(const block& b) { return b.on_device ? "device memory" : "pinned memory"; }

}  // namespace

world& world::instance() {
  static world w;
  return w;
}

thread_state& this_thread() {
  static thread_local thread_state state;
  if (state.epoch != world::instance().epoch) {
    state = thread_state();
    state.epoch = world::instance().epoch;
  }
  return state;
}

void world::reset(const options& o) {
  for (auto& [address, b] : blocks) {
    ::munmap(b->address, b->mapped);
    if (b->on_device) std::free(b->bytes);
  }
  blocks.clear();
  streams.clear();
  events.clear();
  contexts.clear();
  wrong.clear();
  called.clear();
  failures_.clear();
  sticky_ = cudaSuccess;
  host = knowledge();
  copies = pageable_copies = spun = 0;
  capturing = capture_invalidated = false;
  ids_ = 0;
  with = o;
  random = rng(o.seed);
  ++epoch;
}

void world::fail_call(const std::string& name, int nth, cudaError_t code, bool sticky) {
  failures_.push_back({name, nth, code, sticky});
}

cudaError_t world::enter(const char* name, bool needs_context) {
  ++called[name];
  if (with.device_count == 0) return with.no_device_error;
  if (sticky_ != cudaSuccess) return sticky_;
  for (auto f = failures_.begin(); f != failures_.end(); ++f) {
    if (f->name != name || --f->countdown > 0) continue;
    const cudaError_t code = f->code;
    if (f->sticky) sticky_ = code;
    failures_.erase(f);
    return code;
  }
  if (capturing && this_thread().capture_mode == cudaStreamCaptureModeGlobal) {
    for (const char* unsafe : {"cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cudaEventQuery",
                               "cudaEventSynchronize", "cudaStreamQuery", "cudaStreamSynchronize"}) {
      if (std::strcmp(name, unsafe) != 0) continue;
      capture_invalidated = true;
      return cudaErrorStreamCaptureUnsupported;
    }
  }
  if (needs_context) contexts.insert(this_thread().device);
  if (with.early_percent > 0 && random.below(100) < static_cast<std::uint64_t>(with.early_percent)) step();
  return sticky_;
}

block* world::allocate(bool on_device, std::size_t size, int device) {
  auto b = std::make_unique<block>();
  b->on_device = on_device;
  b->device = device;
  b->size = size;
  b->mapped = (size + 2 * page - 1) / page * page;  // at least one page after, so that ranges never touch
  b->address = map_pages(b->mapped, on_device ? PROT_NONE : PROT_READ | PROT_WRITE);
  b->bytes = on_device ? static_cast<char*>(std::malloc(size)) : b->address;
  std::memset(b->bytes, unset, size);
  block* result = b.get();
  blocks[b->address] = std::move(b);
  return result;
}

cudaError_t world::free(void* address, bool on_device, const char* call) {
  if (address == nullptr) return cudaSuccess;
  const auto found = blocks.find(static_cast<char*>(address));
  if (found == blocks.end() || found->second->on_device != on_device) {
    complain(std::string(call) + " of memory that it did not give out");
    return cudaErrorInvalidValue;
  }
  block& b = *found->second;
  if (b.freed) {
    complain(std::string(call) + " of " + on(b) + " that is freed already");
    return cudaErrorInvalidValue;
  }
  for (const access& a : b.accesses) {
    if (!broken() && !host.covers(a.stream, a.seq)) {
      complain(on(b) + " freed while a " + a.what + " on stream " + std::to_string(a.stream) + " may still use it");
      break;
    }
  }
  b.freed = true;
  std::memset(b.bytes, poison, b.size);
  return cudaSuccess;
}

void world::check_poison() {
  for (auto& [address, b] : blocks) {
    if (!b->freed || b->on_device) continue;
    for (std::size_t i = 0; i < b->size; ++i) {
      if (static_cast<unsigned char>(b->bytes[i]) == poison) continue;
      complain("pinned memory written after it was freed");
      std::memset(b->bytes, poison, b->size);
      break;
    }
  }
}

cudaStream_t world::make_stream(int device) {
  auto s = std::make_unique<stream>();
  s->id = ++ids_;
  s->device = device;
  auto* handle = reinterpret_cast<cudaStream_t>(s.get());
  streams[handle] = std::move(s);
  return handle;
}

cudaEvent_t world::make_event(int device, bool sleeps) {
  auto e = std::make_unique<event>();
  e->device = device;
  e->sleeps = sleeps;
  auto* handle = reinterpret_cast<cudaEvent_t>(e.get());
  events[handle] = std::move(e);
  return handle;
}

stream* world::find_stream(cudaStream_t handle, const char* call) {
  const void* key = handle;
  const int device = this_thread().device;
  if (const auto number = reinterpret_cast<std::uintptr_t>(handle); number <= 2) {  // the device's default streams
    key = reinterpret_cast<const void*>(number + 4 * static_cast<std::uintptr_t>(device));
    if (streams.find(key) == streams.end()) {
      auto s = std::make_unique<stream>();
      s->id = ++ids_;
      s->device = device;
      streams[key] = std::move(s);
    }
  }
  const auto found = streams.find(key);
  if (found == streams.end() || found->second->destroyed) {
    complain(std::string(call) + " on a stream that does not exist or is destroyed");
    return nullptr;
  }
  return found->second.get();
}

event* world::find_event(cudaEvent_t handle, const char* call) {
  const auto found = events.find(handle);
  if (found == events.end() || found->second->destroyed) {
    complain(std::string(call) + " with an event that does not exist or is destroyed");
    return nullptr;
  }
  return found->second.get();
}

stream* world::by_id(int id) {
  for (auto& [handle, s] : streams) {
    if (s->id == id) return s.get();
  }
  return nullptr;
}

bool world::locate(const void* address, std::size_t size, const char* call, place& out) {
  char* const p = static_cast<char*>(const_cast<void*>(address));
  out.in = nullptr;
  out.bytes = p;
  auto above = blocks.upper_bound(p);
  if (above == blocks.begin()) return true;
  block& b = *std::prev(above)->second;
  if (p >= b.address + b.mapped) return true;
  const auto offset = static_cast<std::size_t>(p - b.address);
  if (b.freed) {
    complain(std::string(call) + " uses " + on(b) + " that is freed");
    return false;
  }
  if (offset > b.size || size > b.size - offset) {
    complain(std::string(call) + " leaves an allocation of " + std::to_string(b.size) + " bytes of " + on(b));
    return false;
  }
  out.in = &b;
  out.bytes = b.bytes + offset;
  return true;
}

void world::note_use(stream& s, const place& p, std::size_t n, bool write, const char* what) {
  if (p.in == nullptr || n == 0) return;
  block& b = *p.in;
  std::erase_if(b.accesses, [this](const access& a) { return host.covers(a.stream, a.seq); });
  access now;
  now.offset = static_cast<std::size_t>(p.bytes - b.bytes);
  now.size = n;
  now.write = write;
  now.stream = s.id;
  now.seq = s.seq;
  now.what = what;
  for (const access& a : b.accesses) {
    const bool apart = a.offset + a.size <= now.offset || now.offset + now.size <= a.offset;
    if (apart || (!a.write && !write) || s.known.covers(a.stream, a.seq)) continue;
    complain("race in " + on(b) + ": " + what + " on stream " + std::to_string(s.id) + " is not ordered after the " +
             a.what + " on stream " + std::to_string(a.stream));
  }
  b.accesses.push_back(now);
}

void world::enqueue(stream& s, operation op, const char* what) {
  if (s.captures) complain(std::string(what) + " on a stream that captures a graph");
  ++s.seq;
  s.known.learn(host);
  if (op.kind == operation::wait) s.known.learn(op.at->known);
  s.known.upto[s.id] = s.seq;
  if (op.kind == operation::copy || op.kind == operation::read) note_use(s, op.from, op.size, false, what);
  if (op.kind == operation::copy || op.kind == operation::fill) note_use(s, op.to, op.size, true, what);
  for (const use& u : op.uses) note_use(s, u.at, u.size, u.write, what);
  s.tail.reset();
  s.queue.push_back(std::move(op));
}

bool world::pending_write(const place& p, std::size_t n) const {
  const auto begin = static_cast<std::size_t>(p.bytes - p.in->bytes);
  for (const access& a : p.in->accesses) {
    const bool apart = a.offset + a.size <= begin || begin + n <= a.offset;
    if (a.write && !apart && !host.covers(a.stream, a.seq)) return true;
  }
  return false;
}

cudaError_t world::enqueue_copy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, stream& s) {
  operation op;
  op.kind = operation::copy;
  op.size = n;
  if (!locate(to, n, "cudaMemcpyAsync", op.to) || !locate(from, n, "cudaMemcpyAsync", op.from)) {
    return cudaErrorInvalidValue;
  }
  const bool to_device = op.to.in != nullptr && op.to.in->on_device;
  const bool from_device = op.from.in != nullptr && op.from.in->on_device;
  const cudaMemcpyKind real = to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                                        : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  if (kind != cudaMemcpyDefault && kind != real) {
    complain("cudaMemcpyAsync with a direction that the pointers do not have");
    return cudaErrorInvalidMemcpyDirection;
  }
  if (!from_device && op.from.in == nullptr) {
    ++pageable_copies;
    op.snapshot.assign(op.from.bytes, n);
    op.from.bytes = nullptr;
  } else if (!from_device && !pending_write(op.from, n)) {
    op.source_hash = hash(op.from.bytes, n);
    op.hashed = true;
  }
  if (!to_device) std::memset(op.to.bytes, unset, n);  // undefined until the copy is known to be done
  enqueue(s, std::move(op), "copy");
  return cudaSuccess;
}

std::shared_ptr<mark> world::record(stream& s) {
  operation op;
  op.kind = operation::record;
  op.at = std::make_shared<mark>();
  op.at->stream = s.id;
  op.at->polls_left = with.polls_before_ready;
  const std::shared_ptr<mark> made = op.at;
  enqueue(s, std::move(op), "record");
  made->known = s.known;
  return made;
}

std::shared_ptr<mark> world::tail_of(stream& s) {
  if (s.tail == nullptr) {
    const std::shared_ptr<mark> made = record(s);
    s.tail = made;
  }
  return s.tail;
}

bool world::poll(mark& m) {
  if (host.covers(m.stream, m.known.upto[m.stream])) return true;  // known is known: no answer is taken back
  if (m.polls_left-- > 0) return false;                            // also when it is done: told late
  complete(m);
  if (!m.done) return false;
  host.learn(m.known);
  return true;
}

void world::complete(mark& m) {
  while (!m.done && !broken()) {
    stream* s = by_id(m.stream);
    if (s == nullptr || s->queue.empty()) std::abort();
    advance(*s);
  }
}

void world::complete_all() {
  while (step()) {
  }
  for (auto& [handle, s] : streams) host.learn(s->known);
}

bool world::step() {
  if (broken()) return false;
  std::vector<stream*> ready;
  for (auto& [handle, s] : streams) {
    if (s->queue.empty()) continue;
    const operation& front = s->queue.front();
    if (front.kind != operation::wait || front.at->done) ready.push_back(s.get());
  }
  if (ready.empty()) return false;
  stream* chosen = ready.front();
  const std::uint64_t turn = random.below(ready.size());
  for (stream* s : ready) {  // by id, not by address, so that a seed means the same in every run
    std::size_t rank = 0;
    for (stream* other : ready) rank += other->id < s->id;
    if (rank == turn) chosen = s;
  }
  advance(*chosen);
  return true;
}

void world::advance(stream& s) {
  operation& front = s.queue.front();
  if (front.kind == operation::wait && !front.at->done) {
    complete(*front.at);
    return;
  }
  operation op = std::move(front);
  s.queue.pop_front();
  run(op);
}

void world::run(operation& op) {
  const bool lost = (op.to.in != nullptr && op.to.in->freed) || (op.from.in != nullptr && op.from.in->freed);
  switch (op.kind) {
    case operation::copy:
      if (lost) return;  // the free was the violation
      if (op.hashed && hash(op.from.bytes, op.size) != op.source_hash) {
        complain("host memory changed while a copy from it was pending");
      }
      ++copies;
      if (op.size != 0)
        std::memcpy(op.to.bytes, op.from.bytes == nullptr ? op.snapshot.data() : op.from.bytes, op.size);
      return;
    case operation::fill:
      if (!lost) std::memset(op.to.bytes, op.value, op.size);
      return;
    case operation::record:
      op.at->done = true;
      return;
    case operation::host_function:
      this_thread().in_callback = true;
      op.function(op.argument);
      this_thread().in_callback = false;
      return;
    case operation::fault:
      sticky_ = static_cast<cudaError_t>(op.value);
      return;
    case operation::read:
      if (op.look) op.look(op.from.bytes);
      return;
    case operation::launched:
      for (const use& u : op.uses) {
        if (u.at.in != nullptr && u.at.in->freed) return;
      }
      op.launch();
      return;
    case operation::wait:
      return;
  }
}

std::size_t world::pending() const {
  std::size_t n = 0;
  for (const auto& [handle, s] : streams) n += s->queue.size();
  return n;
}

}  // namespace millrace::fake_cuda
