// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/fake_cuda/fake_cuda.hpp"

namespace millrace::fake_cuda {

/// What is known to have happened: for each stream, how many of its operations. Vector clocks, the host being one more
/// party: it learns from queries and synchronisation, and teaches every stream it enqueues on.
struct knowledge {
  std::map<int, std::uint64_t> upto;
  void learn(const knowledge& other) {
    for (const auto& [stream, seq] : other.upto) {
      if (upto[stream] < seq) upto[stream] = seq;
    }
  }
  bool covers(int stream, std::uint64_t seq) const {
    const auto found = upto.find(stream);
    return found != upto.end() && found->second >= seq;
  }
};

/// A place in a stream.
struct mark {
  knowledge known;
  int stream = 0;
  bool done = false;
  int polls_left = 0;
};

struct access {
  std::size_t offset = 0, size = 0;
  bool write = false;
  int stream = 0;
  std::uint64_t seq = 0;
  std::string what;
};

/// One allocation: page-locked host memory, or device memory (an inaccessible range with its bytes kept elsewhere).
struct block {
  bool on_device = false;
  bool freed = false;
  int device = 0;
  char* address = nullptr;
  std::size_t size = 0, mapped = 0;
  char* bytes = nullptr;
  std::vector<access> accesses;
};

/// One end of a copy.
struct place {
  block* in = nullptr;  // null: ordinary host memory
  char* bytes = nullptr;
};

/// What a kernel does with a piece of memory.
struct use {
  place at;
  std::size_t size = 0;
  bool write = false;
};

struct operation {
  enum kind_t { copy, fill, read, launched, record, wait, host_function, fault } kind = copy;
  place to, from;
  std::size_t size = 0;
  int value = 0;
  std::uint64_t source_hash = 0;
  bool hashed = false;
  std::string snapshot;  // of a pageable source, which the runtime stages at the call
  std::shared_ptr<mark> at;
  std::function<void(const void*)> look;  // of a kernel that reads
  std::vector<use> uses;                  // of a kernel that was launched
  std::function<void()> launch;
  cudaHostFn_t function = nullptr;
  void* argument = nullptr;
};

struct stream {
  int id = 0, device = 0;
  bool destroyed = false;
  bool captures = false;
  std::uint64_t seq = 0;
  knowledge known;
  std::deque<operation> queue;
  std::shared_ptr<mark> tail;  // made by cudaStreamQuery and synchronisation
};

struct event {
  int device = 0;
  bool sleeps = false;  // cudaEventBlockingSync: the host that waits
  bool destroyed = false;
  std::shared_ptr<mark> last;
};

/// The keys of default streams: addresses where nothing can be.
inline bool is_default_stream(const void* key) { return reinterpret_cast<std::uintptr_t>(key) < 4096; }

/// The state of the model. One for the process, as the runtime is.
class world {
 public:
  world() = default;
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  ~world() { reset(options()); }
  static world& instance();

  std::recursive_mutex mutex;
  options with;
  rng random{1};
  std::uint64_t epoch = 1;
  std::vector<std::string> wrong;
  std::map<std::string, std::size_t> called;
  std::map<char*, std::unique_ptr<block>> blocks;
  std::map<const void*, std::unique_ptr<stream>> streams;
  std::map<const void*, std::unique_ptr<event>> events;
  std::map<int, std::string> unused;
  std::set<int> contexts;
  knowledge host;
  std::size_t copies = 0, pageable_copies = 0, spun = 0;
  bool capturing = false, capture_invalidated = false;

  void reset(const options& o);
  void fail_call(const std::string& name, int nth, cudaError_t code, bool sticky);
  /// The begin of every runtime call: counts it, and gives the error it has to return, if any.
  cudaError_t enter(const char* name, bool needs_context);
  /// A sticky error: nothing runs any more.
  bool broken() const { return sticky_ != cudaSuccess; }
  cudaError_t sticky() const { return sticky_; }
  void complain(std::string what) { wrong.push_back(std::move(what)); }

  block* allocate(bool on_device, std::size_t size, int device);
  cudaError_t free(void* address, bool on_device, const char* call);

  stream* find_stream(cudaStream_t handle, const char* call);
  event* find_event(cudaEvent_t handle, const char* call);
  cudaStream_t make_stream(int device);
  cudaEvent_t make_event(int device, bool sleeps);

  /// The allocation around [address, address + size), or none for ordinary memory. Complains when it is left or freed.
  bool locate(const void* address, std::size_t size, const char* call, place& out);
  void enqueue(stream& s, operation op, const char* what);
  cudaError_t enqueue_copy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, stream& s);
  std::shared_ptr<mark> record(stream& s);
  std::shared_ptr<mark> tail_of(stream& s);
  /// One question whether `m` is reached; lets its work happen when it was asked often enough.
  bool poll(mark& m);
  void complete(mark& m);
  void complete_all();
  bool step();
  void check_poison();
  std::size_t pending() const;

 private:
  struct failure {
    std::string name;
    int countdown;
    cudaError_t code;
    bool sticky;
  };
  void note_use(stream& s, const place& p, std::size_t n, bool write, const char* what);
  /// Whether enqueued work writes there, as far as the host knows: then it is not the host that changes it.
  bool pending_write(const place& p, std::size_t n) const;
  void advance(stream& s);
  void run(operation& op);
  stream* by_id(int id);

  std::vector<failure> failures_;
  cudaError_t sticky_ = cudaSuccess;
  int ids_ = 0;
};

/// Per thread, as in the runtime.
struct thread_state {
  std::uint64_t epoch = 0;
  int device = 0;
  cudaError_t last = cudaSuccess;
  bool in_callback = false;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
};
thread_state& this_thread();

}  // namespace millrace::fake_cuda
