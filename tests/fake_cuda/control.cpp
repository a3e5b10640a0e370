// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "tests/fake_cuda/world.hpp"

namespace millrace::fake_cuda {

namespace {
std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(world::instance().mutex); }
}  // namespace

void reset(options with) {
  const auto held = lock();
  world::instance().reset(with);
}

void fail_call(const std::string& name, int nth, cudaError_t code, bool sticky) {
  const auto held = lock();
  world::instance().fail_call(name, nth, code, sticky);
}

std::vector<std::string> violations() {
  const auto held = lock();
  world::instance().check_poison();
  return world::instance().wrong;
}

std::size_t calls(const std::string& name) {
  const auto held = lock();
  return world::instance().called[name];
}

census now() {
  const auto held = lock();
  world& w = world::instance();
  census c;
  for (const auto& [handle, s] : w.streams) {
    if (!s->destroyed && !is_default_stream(handle)) ++c.streams;
  }
  for (const auto& [handle, e] : w.events) c.events += e->destroyed ? 0 : 1;
  for (const auto& [address, b] : w.blocks) {
    if (b->freed) continue;
    (b->on_device ? c.device_blocks : c.pinned_blocks) += 1;
    (b->on_device ? c.device_bytes : c.pinned_bytes) += b->size;
  }
  c.pending = w.pending();
  c.copies = w.copies;
  c.pageable_copies = w.pageable_copies;
  c.contexts = w.contexts.size();
  c.spun = w.spun;
  return c;
}

std::string leaks() {
  const census c = now();
  std::string text;
  const auto add = [&text](std::size_t n, const char* what) {
    if (n == 0) return;
    if (!text.empty()) text += ", ";
    text += std::to_string(n) + " " + what;
  };
  add(c.streams, "streams");
  add(c.events, "events");
  add(c.pinned_blocks, "pinned allocations");
  add(c.device_blocks, "device allocations");
  return text;
}

void kernel_read(cudaStream_t handle, const void* device_memory, std::size_t n) {
  kernel(handle, device_memory, n, nullptr);
}

void kernel(cudaStream_t handle, const void* device_memory, std::size_t n, std::function<void(const void*)> look) {
  const auto held = lock();
  world& w = world::instance();
  operation op;
  op.kind = operation::read;
  op.size = n;
  op.look = std::move(look);
  stream* s = w.find_stream(handle, "kernel");
  if (s != nullptr && w.locate(device_memory, n, "kernel", op.from)) w.enqueue(*s, std::move(op), "kernel read");
}

void kernel_write(cudaStream_t handle, void* device_memory, std::size_t n, unsigned char value) {
  const auto held = lock();
  world& w = world::instance();
  operation op;
  op.kind = operation::fill;
  op.size = n;
  op.value = value;
  stream* s = w.find_stream(handle, "kernel");
  if (s != nullptr && w.locate(device_memory, n, "kernel", op.to)) w.enqueue(*s, std::move(op), "kernel write");
}

void kernel_fault(cudaStream_t handle, cudaError_t code) {
  const auto held = lock();
  operation op;
  op.kind = operation::fault;
  op.value = static_cast<int>(code);
  stream* s = world::instance().find_stream(handle, "kernel");
  if (s != nullptr) world::instance().enqueue(*s, std::move(op), "kernel");
}

std::string peek(const void* device_memory, std::size_t n) {
  const auto held = lock();
  place p;
  if (!world::instance().locate(device_memory, n, "peek", p)) return std::string();
  return std::string(p.bytes, n);
}

bool step() {
  const auto held = lock();
  return world::instance().step();
}

}  // namespace millrace::fake_cuda
